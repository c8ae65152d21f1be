// The CUDA side of copse as a shared library: see model/cuda/plugin.h.
#include "model/cuda/plugin.h"
#include "kernels/common/cuda/device.h"
#include "transport/collective/device_collective_local.h"
#include "transport/collective/nccl_collective.h"
#include "worker/cuda/engine_cuda.h"

namespace copse {
namespace {

Result<std::unique_ptr<DeviceCollective>> join(const CudaGroupOptions& options, Collective& host) {
  COPSE_TRY([[maybe_unused]] const auto device, kernels::cuda::open_device(options.device));
  if (options.world_size == 1) return make_local_device_collective();
  NcclJoin nccl;
  nccl.rank = options.rank;
  nccl.world_size = options.world_size;
  if (options.rank == 0) {
    COPSE_TRY(nccl.id, make_nccl_id());
  }
  COPSE_RETURN_IF_ERROR(host.broadcast(nccl.id, 0));
  return join_nccl(nccl);
}

}  // namespace
}  // namespace copse

extern "C" {

__attribute__((visibility("default"))) void copse_cuda_check(int device, copse::Status* out) {
  const auto info = copse::kernels::cuda::open_device(device);
  *out = info.ok() ? copse::Status() : copse::Status(info.error());
}

__attribute__((visibility("default"))) void copse_cuda_prepare(
    const copse::CudaGroupOptions* options) {
  if (options->world_size > 1) copse::set_nccl_environment(options->rank, options->share_gpu);
}

__attribute__((visibility("default"))) void copse_cuda_join(
    const copse::CudaGroupOptions* options, copse::Collective* host,
    copse::Result<std::unique_ptr<copse::DeviceCollective>>* out) {
  *out = copse::join(*options, *host);
}

__attribute__((visibility("default"))) void copse_cuda_load_scorer(
    const copse::CudaScoreOptions* options, copse::DeviceCollective* group,
    copse::Result<std::unique_ptr<copse::CudaScorer>>* out) {
  *out = copse::CudaScorer::load(*options, *group);
}

__attribute__((visibility("default"))) void copse_cuda_load_engine(
    const copse::CudaEngineOptions* options, copse::DeviceCollective* group,
    const copse::Clock* clock, const copse::LoadObserver* progress,
    copse::Result<std::unique_ptr<copse::StepEngine>>* out) {
  *out = copse::load_cuda_engine(*options, *group, *clock, *progress);
}
}
