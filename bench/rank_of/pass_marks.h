#pragma once
// Where the time of a captured step goes: an event behind each part of the pass, recorded by the
// graph itself, and the experts that each layer chose.
#include <array>
#include <vector>

#include "model/cuda/pass_observer.h"

struct CUevent_st;

namespace copse {

class PassMarks final : public PassObserver {
 public:
  PassMarks() = default;
  PassMarks(const PassMarks&) = delete;
  PassMarks& operator=(const PassMarks&) = delete;
  ~PassMarks() override;

  // Copies `ids` [count] behind each layer's routed experts to log + layer * count.
  void log_experts(const std::int32_t* ids, std::size_t count, std::int32_t* log) {
    ids_ = ids;
    count_ = count;
    log_ = log;
  }
  // Before the first part, inside the capture.
  Status begin(kernels::cuda::Stream stream);
  Status launched(PassPart part, int layer, kernels::cuda::Stream stream) override;

  // µs of each part, of the last replay, which is done.
  Result<std::array<double, pass_parts>> split() const;

 private:
  struct Mark {
    CUevent_st* event = nullptr;
    PassPart part = PassPart::rest;
  };
  Status record(PassPart part, kernels::cuda::Stream stream);
  std::vector<Mark> marks_;
  const std::int32_t* ids_ = nullptr;
  std::size_t count_ = 0;
  std::int32_t* log_ = nullptr;
};

}  // namespace copse
