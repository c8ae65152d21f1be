#pragma once
// StepExecutor with a thread: it loads, then runs queued plans in order, the next one begun before
// the last is answered where the engine can. Answers are posted to the actor's thread; the actor's
// thread never waits for it.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "worker/step_engine.h"
#include "worker/step_executor.h"

namespace copse {

class ThreadedExecutor final : public StepExecutor {
 public:
  // Runs a task on the actor's thread, later.
  using Post = std::function<void(std::function<void()>)>;

  ThreadedExecutor(std::unique_ptr<EngineLoader> loader, const Clock& clock, Post post);
  ~ThreadedExecutor() override;  // aborts and waits for the thread

  void start(std::uint32_t epoch, StepSink& sink) override;
  void submit(const StepPlan& plan) override;
  void abort() override;
  const char* stage() const override;

 private:
  void run();
  Status load();
  Status run_plans();
  Status answer_oldest();
  // The next plan; waits for one only where `wait`. None: nothing queued, or stopping.
  bool next_plan(bool wait, StepPlan& plan);
  bool stopping();
  void report_progress(const char* stage, std::uint64_t done, std::uint64_t total);
  void fail(const Error& error, bool permanent);

  const std::unique_ptr<EngineLoader> loader_;
  const Clock& clock_;
  Post post_;
  StepSink* sink_ = nullptr;
  std::uint32_t epoch_ = 0;

  std::mutex mutex_;  // of queue_ and stopping_
  std::condition_variable wake_;
  std::deque<StepPlan> queue_;  // at most limits::plans_in_flight
  bool stopping_ = false;

  std::unique_ptr<StepEngine> engine_;               // the thread's alone
  std::deque<StepId> begun_;                         // likewise: steps whose answers are due
  std::atomic<const StepEngine*> running_{nullptr};  // once it can be asked for its stage
  Instant last_progress_{};
  std::thread thread_;
};

}  // namespace copse
