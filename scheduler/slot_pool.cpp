#include "scheduler/slot_pool.h"

#include <algorithm>

namespace copse {

int SlotPool::in_use() const {
  return static_cast<int>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.state != State::free; }));
}

std::optional<SlotId> SlotPool::open() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    // An owed release leaves in the same plan, before the plan's opens: `owed` is asked first.
    if (slot.state != State::free || slot.owed) continue;
    slot.state = State::open;
    ++slot.generation;
    return SlotId{static_cast<std::uint16_t>(i), slot.generation};
  }
  return std::nullopt;
}

void SlotPool::release(SlotId id, StepId last_named) {
  Slot& slot = slots_[id.index];
  CHECK(slot.state == State::open && slot.generation == id.generation);
  slot.state = State::closing;
  slot.last_named = last_named;
  settle(slot);
}

void SlotPool::settle(Slot& slot) {
  if (slot.state != State::closing || slot.last_named > answered_) return;
  slot.state = State::free;
  slot.owed = true;
}

void SlotPool::answered(StepId step) {
  answered_ = std::max(answered_, step);
  for (Slot& slot : slots_) settle(slot);
}

std::vector<SlotId> SlotPool::owed_releases() {
  std::vector<SlotId> owed;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].owed) continue;
    slots_[i].owed = false;
    owed.push_back({static_cast<std::uint16_t>(i), slots_[i].generation});
  }
  return owed;
}

void SlotPool::keep_owed(const std::vector<SlotId>& slots) {
  for (SlotId slot : slots) slots_[slot.index].owed = true;
}

void SlotPool::forget_workers() {
  for (Slot& slot : slots_) {
    slot.state = State::free;
    slot.owed = false;
  }
}

}  // namespace copse
