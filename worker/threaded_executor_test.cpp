// The executor with the embedded pair and a group of one: what a worker does between `start` and
// its last answer, without sockets.
#include "worker/threaded_executor.h"

#include <gtest/gtest.h>

#include <optional>

#include "worker/engine_loader_cpu.h"

namespace copse {
namespace {

// Stands for the actor's thread: tasks run where the test waits.
class Mailbox {
 public:
  ThreadedExecutor::Post post() {
    return [this](std::function<void()> task) {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      wake_.notify_one();
    };
  }
  template <class Done>
  bool run_until(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(50);
    while (!done()) {
      std::unique_lock lock(mutex_);
      if (!wake_.wait_until(lock, deadline, [this] { return !tasks_.empty(); })) return false;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
};

struct Recorder final : StepSink {
  void on_load_progress(const LoadProgress& progress) override { stages.push_back(progress.stage); }
  void on_ready(const WorkerReady& message) override { ready = message; }
  void on_step_done(const StepResult& result) override { results.push_back(result); }
  void on_failed(const Error& error, bool is_permanent) override {
    failure = error;
    permanent = is_permanent;
  }
  std::vector<std::string> stages;
  std::optional<WorkerReady> ready;
  std::vector<StepResult> results;
  std::optional<Error> failure;
  bool permanent = false;
};

CpuExecutorOptions options() {
  CpuExecutorOptions values;
  values.engine.model = "models/sapling";
  values.engine.drafter = "models/sapling-dflash";
  values.engine.pages = 32;
  values.engine.slots = 2;
  return values;
}

StepPlan opening() {
  StepPlan plan;
  plan.step = 10;
  SlotOpen open;
  open.generation = 5;
  open.remaining_tokens = 20;
  plan.opened.push_back(open);
  PrefillChunk chunk;
  chunk.generation = 5;
  chunk.last = true;
  chunk.tokens = {0, 659, 1003};
  chunk.new_pages = {3};
  plan.prefill.push_back(chunk);
  return plan;
}

TEST(ThreadedExecutor, LoadsMeasuresAndAnswersPlansInOrder) {
  SteadyClock clock;
  Mailbox mailbox;
  Recorder sink;
  ThreadedExecutor executor(make_cpu_loader(options(), clock), clock, mailbox.post());
  executor.start(4, sink);
  ASSERT_TRUE(mailbox.run_until([&] { return sink.ready || sink.failure; }));
  ASSERT_TRUE(sink.ready.has_value()) << describe(*sink.failure);
  EXPECT_EQ(sink.ready->epoch, 4u);
  EXPECT_EQ(sink.ready->pages, 32u);
  EXPECT_EQ(sink.ready->context_tokens, 32u * limits::page_tokens);
  EXPECT_EQ(sink.ready->vocabulary, 4096u);
  EXPECT_EQ(sink.ready->draft_block, 16u);
  EXPECT_EQ(sink.ready->end_tokens, (EndTokens{1, 7}));
  ASSERT_EQ(sink.ready->costs.size(), 8u);
  EXPECT_EQ(sink.ready->costs[0].nodes, 0);
  EXPECT_EQ(sink.ready->costs[7].nodes, 64);
  EXPECT_GT(sink.ready->costs[7].step_us, sink.ready->costs[0].step_us);
  EXPECT_GT(sink.ready->weight_bytes, 20u << 20);

  executor.submit(opening());
  StepPlan round;
  round.step = 11;
  DecodeEntry entry;
  entry.generation = 5;
  entry.mode = DraftMode::tree;
  entry.node_budget = 8;
  round.decode.push_back(entry);
  executor.submit(round);
  ASSERT_TRUE(mailbox.run_until([&] { return sink.results.size() == 2 || sink.failure; }));
  EXPECT_EQ(sink.results[0].step, 10u);
  EXPECT_EQ(sink.results[1].step, 11u);
  EXPECT_EQ(sink.results[0].slots[0].tokens.size(), 1u);
  EXPECT_EQ(sink.results[0].slots[0].length, 3u);
  EXPECT_EQ(sink.results[1].slots[0].draft_nodes, 8u);
  EXPECT_GE(sink.results[1].slots[0].walk_length, 1u);
  EXPECT_EQ(sink.results[1].slots[0].length, 3u + sink.results[1].slots[0].walk_length);
  EXPECT_GT(sink.results[1].timing.verify_us, 0u);
  EXPECT_GT(sink.results[1].timing.compute_cpu_us, 0u);
}

// An engine that runs two plans at a time, as a GPU's; writes down the order of what it is asked.
class TwoPlans final : public StepEngine {
 public:
  explicit TwoPlans(std::vector<std::string>& calls, std::atomic<bool>& held)
      : calls_(calls), held_(held) {}
  Status begin(const StepPlan& plan) override {
    while (held_.load()) std::this_thread::yield();
    calls_.push_back("begin " + std::to_string(plan.step));
    begun_.push_back(plan.step);
    return {};
  }
  Result<StepResult> finish() override {
    calls_.push_back("finish " + std::to_string(begun_.front()));
    StepResult result;
    result.timing.total_us = static_cast<std::uint32_t>(begun_.front());
    begun_.pop_front();
    return result;
  }
  int plans_at_once() const override { return 2; }
  Result<WorkerReady> measure() override { return WorkerReady(); }
  const char* stage() const override { return "step"; }

 private:
  std::vector<std::string>& calls_;
  std::atomic<bool>& held_;
  std::deque<StepId> begun_;
};

class TwoPlansLoader final : public EngineLoader {
 public:
  TwoPlansLoader(std::vector<std::string>& calls, std::atomic<bool>& held)
      : calls_(calls), held_(held) {}
  Result<std::unique_ptr<StepEngine>> load(const LoadObserver&) override {
    return std::unique_ptr<StepEngine>(std::make_unique<TwoPlans>(calls_, held_));
  }
  void abort() noexcept override {}

 private:
  std::vector<std::string>& calls_;
  std::atomic<bool>& held_;
};

TEST(ThreadedExecutor, BeginsAPlanBeforeTheLastIsFinishedAndAnswersInOrder) {
  SteadyClock clock;
  Mailbox mailbox;
  Recorder sink;
  std::vector<std::string> calls;
  std::atomic<bool> held{true};
  {
    ThreadedExecutor executor(std::make_unique<TwoPlansLoader>(calls, held), clock, mailbox.post());
    executor.start(1, sink);
    ASSERT_TRUE(mailbox.run_until([&] { return sink.ready.has_value(); }));
    StepPlan plan;
    for (plan.step = 7; plan.step < 9; ++plan.step) executor.submit(plan);
    held.store(false);
    ASSERT_TRUE(mailbox.run_until([&] { return sink.results.size() == 2; }));
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"begin 7", "begin 8", "finish 7", "finish 8"}));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sink.results[i].step, 7 + i);
    EXPECT_EQ(sink.results[i].timing.total_us, 7 + i);
  }
}

TEST(ThreadedExecutor, APlanThatDoesNotFitIsAFailure) {
  SteadyClock clock;
  Mailbox mailbox;
  Recorder sink;
  ThreadedExecutor executor(make_cpu_loader(options(), clock), clock, mailbox.post());
  executor.start(1, sink);
  StepPlan plan = opening();
  plan.prefill[0].slot = 1;  // not open
  executor.submit(plan);
  ASSERT_TRUE(mailbox.run_until([&] { return sink.failure.has_value(); }));
  EXPECT_FALSE(sink.permanent);
}

TEST(ThreadedExecutor, AModelThatIsNotThereIsPermanent) {
  SteadyClock clock;
  Mailbox mailbox;
  Recorder sink;
  CpuExecutorOptions missing = options();
  missing.engine.model = "models/none";
  ThreadedExecutor executor(make_cpu_loader(missing, clock), clock, mailbox.post());
  executor.start(1, sink);
  ASSERT_TRUE(mailbox.run_until([&] { return sink.failure.has_value(); }));
  EXPECT_TRUE(sink.permanent);
}

TEST(ThreadedExecutor, EndsWhileItLoads) {
  SteadyClock clock;
  Mailbox mailbox;
  Recorder sink;
  {
    ThreadedExecutor executor(make_cpu_loader(options(), clock), clock, mailbox.post());
    executor.start(1, sink);
    executor.abort();
  }
  EXPECT_TRUE(sink.results.empty());
}

}  // namespace
}  // namespace copse
