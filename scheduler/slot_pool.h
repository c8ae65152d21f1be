#pragma once
// Step 3: the slots of the workers' state. A slot that is given back waits until the last plan that
// names it is answered; the next plan then tells the workers, and it opens under a new generation.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace copse {

class SlotPool {
 public:
  explicit SlotPool(int slots) : slots_(static_cast<std::size_t>(slots)) {}

  int total() const { return static_cast<int>(slots_.size()); }
  int in_use() const;
  // The lowest free slot under its next generation; none if all are taken or waiting.
  std::optional<SlotId> open();
  void release(SlotId slot, StepId last_named);
  void answered(StepId step);
  // Slots that the workers still hold open and that no plan on the way names. Each is listed once.
  std::vector<SlotId> owed_releases();
  // The plan that would have carried them was not sent.
  void keep_owed(const std::vector<SlotId>& slots);
  // The workers are new: nothing is open on them. Generations go on growing.
  void forget_workers();

 private:
  enum class State : std::uint8_t { free, open, closing };
  struct Slot {
    State state = State::free;
    bool owed = false;  // open on the workers, to be released by the next plan
    std::uint32_t generation = 0;
    StepId last_named = 0;
  };
  void settle(Slot& slot);

  std::vector<Slot> slots_;
  StepId answered_ = 0;
};

}  // namespace copse
