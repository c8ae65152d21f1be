#include "worker/cuda/flight.h"

#include <cuda_runtime_api.h>

#include <new>

#include "kernels/common/cuda/status.h"

namespace copse {

using kernels::cuda::cuda_status;

Result<std::unique_ptr<Flight>> Flight::create() {
  std::unique_ptr<Flight> flight(new Flight());
  void* pinned = nullptr;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaMallocHost(&pinned, sizeof(Memory)), "allocating pinned memory"));
  flight->memory_ = new (pinned) Memory{};
  for (CUevent_st*& event : flight->events_) {
    COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&event), "cudaEventCreate"));
  }
  flight->places.reserve(2 * limits::batch_sequences);
  flight->generations.reserve(2 * limits::batch_sequences);
  return flight;
}

Flight::~Flight() {
  for (CUevent_st* event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

void Flight::clear() {
  places.clear();
  generations.clear();
  results_used = 0;
  prefills = false;
}

Status Flight::record(Mark mark, kernels::cuda::Stream stream) {
  return cuda_status(cudaEventRecord(events_[static_cast<std::size_t>(mark)], stream),
                     "cudaEventRecord");
}

Result<bool> Flight::done() {
  const cudaError_t state = cudaEventQuery(events_[static_cast<std::size_t>(Mark::end)]);
  if (state == cudaErrorNotReady) return false;
  COPSE_RETURN_IF_ERROR(cuda_status(state, "running a step"));
  return true;
}

Result<float> Flight::milliseconds(Mark from, Mark to) {
  float ms = 0;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaEventElapsedTime(&ms, events_[static_cast<std::size_t>(from)],
                                       events_[static_cast<std::size_t>(to)]),
                  "cudaEventElapsedTime"));
  return ms;
}

}  // namespace copse
