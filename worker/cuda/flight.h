#pragma once
// One plan on its way through the device: what is copied there, what comes back, and the events
// that say when. Host memory is pinned, so that copies are in the order of the stream and nobody
// waits.
#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/round_state/round_state.h"

struct CUevent_st;

namespace copse {

class Flight {
 public:
  static constexpr int rounds_max = limits::batch_sequences;  // groups of entries of one plan

  struct Memory {
    kernels::cuda::StartPlan start;
    std::array<kernels::cuda::PrefillPlan, limits::batch_sequences> prefill;
    std::array<kernels::cuda::RoundPlan, rounds_max> round;
    std::array<kernels::cuda::RoundResult, 2 * limits::batch_sequences> results;
  };

  static Result<std::unique_ptr<Flight>> create();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight();

  Memory& memory() { return *memory_; }
  // Of the i-th result, in the order of the plan: prefill chunks, then decode entries.
  std::vector<std::size_t> places;  // in memory().results
  std::vector<std::uint32_t> generations;
  std::size_t results_used = 0;
  bool prefills = false;
  void clear();

  enum class Mark : std::uint8_t { begin, prefilled, end };
  Status record(Mark mark, kernels::cuda::Stream stream);
  // Whether the stream has reached the end; an error of any kernel shows here.
  Result<bool> done();
  Result<float> milliseconds(Mark from, Mark to);

 private:
  Flight() = default;
  Memory* memory_ = nullptr;
  std::array<CUevent_st*, 3> events_{};
};

}  // namespace copse
