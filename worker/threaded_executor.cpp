#include "worker/threaded_executor.h"

#include <utility>

namespace copse {

ThreadedExecutor::ThreadedExecutor(std::unique_ptr<EngineLoader> loader, const Clock& clock,
                                   Post post)
    : loader_(std::move(loader)), clock_(clock), post_(std::move(post)) {}

ThreadedExecutor::~ThreadedExecutor() {
  abort();
  if (thread_.joinable()) thread_.join();
}

void ThreadedExecutor::start(std::uint32_t epoch, StepSink& sink) {
  CHECK(!thread_.joinable());
  epoch_ = epoch;
  sink_ = &sink;
  thread_ = std::thread([this] { run(); });
}

void ThreadedExecutor::submit(const StepPlan& plan) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(queue_.size() < limits::plans_in_flight);
    queue_.push_back(plan);
  }
  wake_.notify_one();
}

void ThreadedExecutor::abort() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  loader_->abort();
  wake_.notify_one();
}

const char* ThreadedExecutor::stage() const {
  const StepEngine* engine = running_.load(std::memory_order_acquire);
  return engine == nullptr ? "load" : engine->stage();
}

void ThreadedExecutor::run() {
  if (!load().ok()) return;
  const Status status = run_plans();
  if (!status.ok()) fail(status.error(), false);
}

Status ThreadedExecutor::load() {
  const Instant started = clock_.now();
  auto engine = loader_->load([this](const char* stage, std::uint64_t done, std::uint64_t total) {
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

bool ThreadedExecutor::next_plan(bool wait, StepPlan& plan) {
  std::unique_lock lock(mutex_);
  if (wait) wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  if (stopping_ || queue_.empty()) return false;
  plan = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

bool ThreadedExecutor::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

Status ThreadedExecutor::run_plans() {
  StepPlan plan;
  while (!stopping()) {
    const bool full = static_cast<int>(begun_.size()) == engine_->plans_at_once();
    if (!full && next_plan(begun_.empty(), plan)) {
      COPSE_RETURN_IF_ERROR(engine_->begin(plan));
      begun_.push_back(plan.step);
    } else if (!begun_.empty()) {
      COPSE_RETURN_IF_ERROR(answer_oldest());
    }
  }
  return {};
}

Status ThreadedExecutor::answer_oldest() {
  COPSE_TRY(StepResult result, engine_->finish());
  result.epoch = epoch_;
  result.step = begun_.front();
  begun_.pop_front();
  post_([this, message = std::move(result)] { sink_->on_step_done(message); });
  return {};
}

// Often enough for a bar, seldom enough for the link.
void ThreadedExecutor::report_progress(const char* stage, std::uint64_t done, std::uint64_t total) {
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

void ThreadedExecutor::fail(const Error& error, bool permanent) {
  post_([this, error, permanent] { sink_->on_failed(error, permanent); });
}

}  // namespace copse
