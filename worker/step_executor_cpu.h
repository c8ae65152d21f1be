#pragma once
// StepExecutor on the CPU: one thread that loads, then runs queued plans in order. Answers are
// posted to the actor's thread; the actor's thread never waits for it.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "worker/engine.h"
#include "worker/step_executor.h"

namespace copse {

struct CpuExecutorOptions {
  EngineOptions engine;
  int rank = 0;
  int world_size = 1;
  int collective_fd = -1;  // of a shm region; not needed by a group of one
};

class CpuStepExecutor final : public StepExecutor {
 public:
  // Runs a task on the actor's thread, later.
  using Post = std::function<void(std::function<void()>)>;

  CpuStepExecutor(CpuExecutorOptions options, const Clock& clock, Post post);
  ~CpuStepExecutor() override;  // aborts and waits for the thread

  void start(std::uint32_t epoch, StepSink& sink) override;
  void submit(const StepPlan& plan) override;
  void abort() override;
  const char* stage() const override;

 private:
  void run();
  Result<std::unique_ptr<Collective>> join_group();
  Status load();
  void run_plans();
  bool next_plan(StepPlan& plan);
  void report_progress(const char* stage, std::uint64_t done, std::uint64_t total);
  void fail(const Error& error, bool permanent);

  const CpuExecutorOptions options_;
  const Clock& clock_;
  Post post_;
  StepSink* sink_ = nullptr;
  std::uint32_t epoch_ = 0;

  std::mutex mutex_;  // of queue_, stopping_ and group_
  std::condition_variable wake_;
  std::deque<StepPlan> queue_;  // at most limits::plans_in_flight
  bool stopping_ = false;
  std::unique_ptr<Collective> group_;  // set once by the thread; abort() may call it from others

  std::unique_ptr<Engine> engine_;               // the thread's alone
  std::atomic<const Engine*> running_{nullptr};  // the same, once it can be asked for its stage
  Instant last_progress_{};
  std::thread thread_;
};

}  // namespace copse
