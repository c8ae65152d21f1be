#include "worker/engine_loader_cpu.h"

#include <mutex>
#include <utility>

#include "transport/collective/local.h"
#include "transport/collective/shm.h"

namespace copse {
namespace {

// Engine's steps are done when begin() returns.
class CpuStepEngine final : public StepEngine {
 public:
  explicit CpuStepEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Status begin(const StepPlan& plan) override { return engine_->run(plan); }
  Result<StepResult> finish() override { return engine_->result(); }
  int plans_at_once() const override { return 1; }
  Result<WorkerReady> measure() override { return engine_->measure(); }
  const char* stage() const override { return engine_->stage(); }

 private:
  std::unique_ptr<Engine> engine_;
};

class CpuEngineLoader final : public EngineLoader {
 public:
  CpuEngineLoader(const CpuExecutorOptions& options, const Clock& clock)
      : options_(options), clock_(clock) {}

  Result<std::unique_ptr<StepEngine>> load(const LoadObserver& progress) override {
    auto joined = join_group();
    if (!joined.ok()) {  // another start may find its peers
      return Error{ErrorCode::unavailable, joined.error().field, joined.error().message};
    }
    {
      const std::lock_guard lock(mutex_);
      group_ = std::move(joined).value();
      if (aborted_) group_->abort();
    }
    COPSE_TRY(std::unique_ptr<Engine> engine,
              Engine::load(options_.engine, *group_, clock_, progress));
    return std::unique_ptr<StepEngine>(std::make_unique<CpuStepEngine>(std::move(engine)));
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    if (group_) group_->abort();
  }

 private:
  Result<std::unique_ptr<Collective>> join_group() {
    if (options_.world_size == 1) return make_local_collective();
    ShmJoin join;
    join.pin = true;
    return join_shm(options_.collective_fd, options_.rank, options_.world_size, join);
  }

  const CpuExecutorOptions options_;
  const Clock& clock_;
  std::mutex mutex_;  // of group_ and aborted_
  bool aborted_ = false;
  std::unique_ptr<Collective> group_;  // outlives the engine: the executor drops that first
};

}  // namespace

std::unique_ptr<EngineLoader> make_cpu_loader(const CpuExecutorOptions& options,
                                              const Clock& clock) {
  return std::make_unique<CpuEngineLoader>(options, clock);
}

}  // namespace copse
