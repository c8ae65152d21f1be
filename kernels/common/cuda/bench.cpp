#include "kernels/common/cuda/bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "kernels/common/cuda/status.h"

namespace copse::kernels::cuda::bench {
namespace {

Result<double> replay_us(cudaGraphExec_t graph, cudaStream_t stream, cudaEvent_t begin,
                         cudaEvent_t end) {
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventRecord(begin, stream), "cudaEventRecord"));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaGraphLaunch(graph, stream), "cudaGraphLaunch"));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventRecord(end, stream), "cudaEventRecord"));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventSynchronize(end), "cudaEventSynchronize"));
  float ms = 0;
  COPSE_RETURN_IF_ERROR(cuda_status(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime"));
  return static_cast<double>(ms) * 1000.0;
}

}  // namespace

Result<double> graph_time_us(int calls, int warm_up, int replays,
                             const std::function<Status(int, Stream)>& launch) {
  CHECK(calls > 0 && replays > 0);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  const auto measure = [&]() -> Result<double> {
    COPSE_RETURN_IF_ERROR(cuda_status(cudaStreamCreate(&stream), "cudaStreamCreate"));
    COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&begin), "cudaEventCreate"));
    COPSE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&end), "cudaEventCreate"));
    COPSE_RETURN_IF_ERROR(launch(0, stream));  // lazy set-up must not fall into the capture
    COPSE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream), "first call"));
    COPSE_RETURN_IF_ERROR(
        cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture"));
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) status = launch(i, stream);
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    COPSE_RETURN_IF_ERROR(status);
    COPSE_RETURN_IF_ERROR(cuda_status(captured, "capture"));
    COPSE_RETURN_IF_ERROR(cuda_status(cudaGraphInstantiate(&exec, graph, 0), "instantiate"));
    std::vector<double> times;
    for (int i = 0; i < warm_up + replays; ++i) {
      COPSE_TRY(const double us, replay_us(exec, stream, begin, end));
      if (i >= warm_up) times.push_back(us);
    }
    std::nth_element(times.begin(), times.begin() + replays / 2, times.end());
    return times[static_cast<std::size_t>(replays / 2)] / calls;
  };
  const Result<double> result = measure();
  if (exec != nullptr) cudaGraphExecDestroy(exec);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (stream != nullptr) cudaStreamDestroy(stream);
  return result;
}

}  // namespace copse::kernels::cuda::bench
