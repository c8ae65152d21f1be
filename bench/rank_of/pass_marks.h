#pragma once
// Where the time of a captured step goes: an event behind each part of the pass, recorded by the
// graph itself; and the experts that each layer is made to choose.
#include <array>
#include <vector>

#include "model/cuda/pass_observer.h"

struct CUevent_st;

namespace copse {

class PassMarks final : public PassObserver {
 public:
  PassMarks(const PassMarks&) = delete;
  PassMarks& operator=(const PassMarks&) = delete;
  ~PassMarks() override;

  // events: whether parts are timed. routing [layers][count], if given, replaces what each layer
  // chose.
  PassMarks(bool events, const std::int32_t* routing, std::size_t count)
      : events_(events), routing_(routing), count_(count) {}
  // Before the first part, inside the capture.
  Status begin(kernels::cuda::Stream stream);
  Status launched(PassPart part, int layer, kernels::cuda::Stream stream) override;
  Status routed(int layer, std::int32_t* ids, kernels::cuda::Stream stream) override;

  // µs of each part, of the last replay, which is done.
  Result<std::array<double, pass_parts>> split() const;

 private:
  struct Mark {
    CUevent_st* event = nullptr;
    PassPart part = PassPart::rest;
  };
  Status record(PassPart part, kernels::cuda::Stream stream);
  std::vector<Mark> marks_;
  bool events_;
  const std::int32_t* routing_;
  std::size_t count_;
};

}  // namespace copse
