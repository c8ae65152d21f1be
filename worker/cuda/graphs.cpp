#include "worker/cuda/graphs.h"

#include <cuda_runtime_api.h>

#include "kernels/common/cuda/status.h"

namespace copse {

using kernels::cuda::cuda_status;

GraphCache::~GraphCache() {
  clear();
}

void GraphCache::clear() {
  for (const auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

Status GraphCache::capture(const RoundKey& key, const Launches& launches, Stream stream) {
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture"));
  const Status launched = launches(stream);
  cudaGraph_t graph = nullptr;
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
  if (!launched.ok() || captured != cudaSuccess) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    return launched.ok() ? cuda_status(captured, "ending a capture") : launched;
  }
  cudaGraphExec_t exec = nullptr;
  const cudaError_t instantiated = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  COPSE_RETURN_IF_ERROR(cuda_status(instantiated, "instantiating a graph"));
  graphs_[key] = exec;
  return cuda_status(cudaGraphUpload(exec, stream), "uploading a graph");
}

Status GraphCache::launch(const RoundKey& key, Stream stream) {
  return cuda_status(cudaGraphLaunch(graphs_.at(key), stream), "launching a graph");
}

}  // namespace copse
