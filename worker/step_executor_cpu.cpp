#include "worker/step_executor_cpu.h"

#include <utility>

#include "transport/collective/local.h"
#include "transport/collective/shm.h"

namespace copse {

CpuStepExecutor::CpuStepExecutor(CpuExecutorOptions options, const Clock& clock, Post post)
    : options_(std::move(options)), clock_(clock), post_(std::move(post)) {}

CpuStepExecutor::~CpuStepExecutor() {
  abort();
  if (thread_.joinable()) thread_.join();
}

void CpuStepExecutor::start(std::uint32_t epoch, StepSink& sink) {
  CHECK(!thread_.joinable());
  epoch_ = epoch;
  sink_ = &sink;
  thread_ = std::thread([this] { run(); });
}

void CpuStepExecutor::submit(const StepPlan& plan) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(queue_.size() < limits::plans_in_flight);
    queue_.push_back(plan);
  }
  wake_.notify_one();
}

void CpuStepExecutor::abort() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (group_) group_->abort();
  }
  wake_.notify_one();
}

const char* CpuStepExecutor::stage() const {
  const Engine* engine = running_.load(std::memory_order_acquire);
  return engine == nullptr ? "load" : engine->stage();
}

void CpuStepExecutor::run() {
  const Status loaded = load();
  if (!loaded.ok()) return;
  run_plans();
}

Result<std::unique_ptr<Collective>> CpuStepExecutor::join_group() {
  if (options_.world_size == 1) return make_local_collective();
  ShmJoin join;
  join.pin = true;
  return join_shm(options_.collective_fd, options_.rank, options_.world_size, join);
}

Status CpuStepExecutor::load() {
  const Instant started = clock_.now();
  auto group = join_group();
  if (!group.ok()) {
    fail(group.error(), false);
    return group.error();
  }
  {
    const std::lock_guard lock(mutex_);
    group_ = std::move(group).value();
    if (stopping_) group_->abort();
  }
  auto engine = Engine::load(options_.engine, *group_, clock_,
                             [this](const char* stage, std::uint64_t done, std::uint64_t total) {
                               report_progress(stage, done, total);
                             });
  if (!engine.ok()) {
    const ErrorCode code = engine.error().code;
    // Everything else about a checkpoint is the same at the next start.
    const bool again = code == ErrorCode::aborted || code == ErrorCode::deadline ||
                       code == ErrorCode::unavailable || code == ErrorCode::resource_exhausted;
    fail(engine.error(), !again);
    return engine.error();
  }
  engine_ = std::move(engine).value();
  running_.store(engine_.get(), std::memory_order_release);
  report_progress("warm-up", 0, 1);
  auto ready = engine_->measure();
  if (!ready.ok()) {
    fail(ready.error(), false);
    return ready.error();
  }
  ready->epoch = epoch_;
  ready->load_s = static_cast<float>(seconds(clock_.now() - started));
  post_([this, message = std::move(ready).value()] { sink_->on_ready(message); });
  return {};
}

bool CpuStepExecutor::next_plan(StepPlan& plan) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  if (stopping_) return false;
  plan = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void CpuStepExecutor::run_plans() {
  StepPlan plan;
  while (next_plan(plan)) {
    const Status status = engine_->run(plan);
    if (!status.ok()) return fail(status.error(), false);
    StepResult result = engine_->result();
    result.epoch = epoch_;
    result.step = plan.step;
    post_([this, message = std::move(result)] { sink_->on_step_done(message); });
  }
}

// Often enough for a bar, seldom enough for the link.
void CpuStepExecutor::report_progress(const char* stage, std::uint64_t done, std::uint64_t total) {
  const Instant now = clock_.now();
  if (done < total && done > 0 && now - last_progress_ < milliseconds(100)) return;
  last_progress_ = now;
  LoadProgress progress;
  progress.epoch = epoch_;
  progress.stage = stage;
  progress.done = done;
  progress.total = total;
  post_([this, message = std::move(progress)] { sink_->on_load_progress(message); });
}

void CpuStepExecutor::fail(const Error& error, bool permanent) {
  post_([this, error, permanent] { sink_->on_failed(error, permanent); });
}

}  // namespace copse
