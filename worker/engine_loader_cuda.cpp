#include "worker/engine_loader_cuda.h"

#include <mutex>
#include <utility>

#include "transport/collective/local.h"
#include "transport/collective/shm.h"

namespace copse {
namespace {

extern "C" {
using LoadEngineFunction = void(const CudaEngineOptions*, DeviceCollective*, const Clock*,
                                const LoadObserver*, Result<std::unique_ptr<StepEngine>>* out);
}

class CudaEngineLoader final : public EngineLoader {
 public:
  CudaEngineLoader(const CudaExecutorOptions& options, const Clock& clock,
                   CudaFunction<CudaJoinFunction> join,
                   CudaFunction<LoadEngineFunction> load_engine)
      : options_(options), clock_(clock), join_(join), load_(load_engine) {}

  Result<std::unique_ptr<StepEngine>> load(const LoadObserver& progress) override {
    COPSE_RETURN_IF_ERROR(meet());
    Result<std::unique_ptr<DeviceCollective>> joined =
        Error{ErrorCode::internal, "collective", "nobody joined it"};
    join_(&options_.group, host_.get(), &joined);
    if (!joined.ok()) return joined.error();
    {
      const std::lock_guard lock(mutex_);
      group_ = std::move(joined).value();
      if (aborted_) group_->abort();
    }
    Result<std::unique_ptr<StepEngine>> engine =
        Error{ErrorCode::internal, "device", "nothing was loaded"};
    load_(&options_.engine, group_.get(), &clock_, &progress, &engine);
    return engine;
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    if (host_) host_->abort();
    if (group_) group_->abort();
  }

 private:
  Status meet() {
    const int world_size = options_.group.world_size;
    auto host = world_size == 1
                    ? Result<std::unique_ptr<Collective>>(make_local_collective())
                    : join_shm(options_.collective_fd, options_.group.rank, world_size, {});
    if (!host.ok()) {  // another start may find its peers
      return Error{ErrorCode::unavailable, host.error().field, host.error().message};
    }
    const std::lock_guard lock(mutex_);
    host_ = std::move(host).value();
    if (aborted_) host_->abort();
    return {};
  }

  const CudaExecutorOptions options_;
  const Clock& clock_;
  const CudaFunction<CudaJoinFunction> join_;
  const CudaFunction<LoadEngineFunction> load_;
  std::mutex mutex_;  // of what follows
  bool aborted_ = false;
  std::unique_ptr<Collective> host_;
  std::unique_ptr<DeviceCollective> group_;  // outlives the engine: the executor drops that first
};

}  // namespace

Result<std::unique_ptr<EngineLoader>> make_cuda_loader(const CudaExecutorOptions& options,
                                                       const Clock& clock) {
  COPSE_TRY(const auto prepare, cuda_function<CudaPrepareFunction>("copse_cuda_prepare"));
  COPSE_TRY(const auto join, cuda_function<CudaJoinFunction>("copse_cuda_join"));
  COPSE_TRY(const auto load, cuda_function<LoadEngineFunction>("copse_cuda_load_engine"));
  prepare(&options.group);
  return std::unique_ptr<EngineLoader>(
      std::make_unique<CudaEngineLoader>(options, clock, join, load));
}

}  // namespace copse
