#include "bench/rank_of/pass_marks.h"

#include <cuda_runtime_api.h>

#include "kernels/common/cuda/status.h"

namespace copse {

using kernels::cuda::cuda_status;

PassMarks::~PassMarks() {
  for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
}

Status PassMarks::record(PassPart part, kernels::cuda::Stream stream) {
  if (!events_) return {};
  Mark mark;
  mark.part = part;
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&mark.event), "cudaEventCreate"));
  marks_.push_back(mark);
  return cuda_status(cudaEventRecordWithFlags(mark.event, stream, cudaEventRecordExternal),
                     "cudaEventRecord");
}

Status PassMarks::begin(kernels::cuda::Stream stream) {
  return record(PassPart::rest, stream);
}

Status PassMarks::launched(PassPart part, int layer, kernels::cuda::Stream stream) {
  (void)layer;
  return record(part, stream);
}

Status PassMarks::routed(int layer, std::int32_t* ids, kernels::cuda::Stream stream) {
  if (routing_ == nullptr) return {};
  return cuda_status(
      cudaMemcpyAsync(ids, routing_ + static_cast<std::size_t>(layer) * count_,
                      count_ * sizeof(std::int32_t), cudaMemcpyDeviceToDevice, stream),
      "choosing experts");
}

Result<std::array<double, pass_parts>> PassMarks::split() const {
  std::array<double, pass_parts> us{};
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    float ms = 0;
    COPSE_RETURN_IF_ERROR(cuda_status(
        cudaEventElapsedTime(&ms, marks_[i - 1].event, marks_[i].event), "cudaEventElapsedTime"));
    us[static_cast<std::size_t>(marks_[i].part)] += static_cast<double>(ms) * 1000.0;
  }
  return us;
}

}  // namespace copse
