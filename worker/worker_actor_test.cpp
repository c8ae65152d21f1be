#include <gtest/gtest.h>

#include <optional>

#include "base/limits.h"
#include "worker/worker.h"

namespace copse {
namespace {

constexpr std::uint32_t kEpoch = 3;
const PeerId kCoordinator{Role::coordinator, 0, 99};

class RecordingLink final : public Link {
 public:
  void set_epoch(std::uint32_t epoch) override { epoch_ = epoch; }
  void close(const PeerId&) override {}
  std::uint64_t stale_messages() const override { return 0; }
  int count(Kind kind) const {
    return static_cast<int>(std::count(kinds.begin(), kinds.end(), kind));
  }
  std::vector<Kind> kinds;
  SendResult answer = SendResult::ok;
  std::uint32_t epoch_ = 0;

 private:
  SendResult send_body(const PeerId&, Kind kind, std::vector<std::byte>) override {
    kinds.push_back(kind);
    return answer;
  }
};

class IdleExecutor final : public StepExecutor {
 public:
  void start(std::uint32_t, StepSink& to) override { sink = &to; }
  void submit(const StepPlan& plan) override { steps.push_back(plan.step); }
  void abort() override { aborted = true; }
  StepSink* sink = nullptr;
  std::vector<StepId> steps;
  bool aborted = false;
};

struct WorkerActor : ::testing::Test {
  ManualClock clock;
  RecordingLink link;
  IdleExecutor executor;
  std::optional<WorkerExit> exit;
  WorkerConfig config = [] {
    WorkerConfig values;
    values.epoch = kEpoch;
    values.rank = 2;
    values.world_size = 8;
    values.coordinator = kCoordinator;
    return values;
  }();
  Worker worker{config, link, clock, executor, [this](WorkerExit status) { exit = status; }};

  void become_ready() {
    worker.start();
    worker.on(kCoordinator, WorkerWelcome{kEpoch});
    ASSERT_NE(executor.sink, nullptr);
    executor.sink->on_ready({});
  }
  StepPlan plan(StepId step, std::uint32_t epoch = kEpoch) {
    StepPlan value;
    value.epoch = epoch;
    value.step = step;
    return value;
  }
  void done(StepId step) {
    StepResult result;
    result.step = step;
    executor.sink->on_step_done(result);
  }
  void pass(std::int64_t ms) {
    for (std::int64_t i = 0; i < ms; i += 20) {
      clock.advance(milliseconds(20));
      worker.on_tick(clock.now());
    }
  }
};

TEST_F(WorkerActor, RegistersLoadsAndAnswersPlansInOrder) {
  become_ready();
  EXPECT_EQ(link.epoch_, kEpoch);
  worker.on(kCoordinator, plan(41));
  worker.on(kCoordinator, plan(42));
  EXPECT_EQ(executor.steps, (std::vector<StepId>{41, 42}));
  done(41);
  done(42);
  EXPECT_EQ(link.count(Kind::register_worker), 1);
  EXPECT_EQ(link.count(Kind::worker_ready), 1);
  EXPECT_EQ(link.count(Kind::step_result), 2);
  EXPECT_FALSE(exit.has_value());
}

TEST_F(WorkerActor, AGapBetweenPlansEndsIt) {
  become_ready();
  worker.on(kCoordinator, plan(41));
  worker.on(kCoordinator, plan(43));
  EXPECT_EQ(exit, WorkerExit::failed);
  EXPECT_EQ(link.count(Kind::worker_failed), 1);
}

TEST_F(WorkerActor, APlanOfAnotherEpochIsRefusedAndHarmless) {
  become_ready();
  worker.on(kCoordinator, plan(41, kEpoch - 1));
  EXPECT_TRUE(executor.steps.empty());
  EXPECT_EQ(worker.refused_messages(), 1u);
  EXPECT_FALSE(exit.has_value());
}

TEST_F(WorkerActor, MorePlansThanAllowedEndIt) {
  become_ready();
  for (StepId step = 1; step <= limits::plans_in_flight; ++step) {
    worker.on(kCoordinator, plan(step));
  }
  EXPECT_FALSE(exit.has_value());
  worker.on(kCoordinator, plan(limits::plans_in_flight + 1));
  EXPECT_EQ(exit, WorkerExit::failed);
}

TEST_F(WorkerActor, HeartbeatsGoOnDuringAStep) {
  become_ready();
  worker.on(kCoordinator, plan(1));
  const int before = link.count(Kind::worker_heartbeat);
  pass(1600);
  EXPECT_EQ(link.count(Kind::worker_heartbeat) - before, 3);
}

TEST_F(WorkerActor, AStuckStepIsAbortedAndThenEndsTheProcess) {
  become_ready();
  worker.on(kCoordinator, plan(1));
  pass(limits::step_hard_ms - 100);
  EXPECT_FALSE(executor.aborted);
  pass(200);
  EXPECT_TRUE(executor.aborted);
  EXPECT_FALSE(exit.has_value()) << "the executor may still report";
  pass(1200);
  EXPECT_EQ(exit, WorkerExit::failed);
}

TEST_F(WorkerActor, AStepThatEndsInTimeIsNotHeldAgainstTheNext) {
  become_ready();
  worker.on(kCoordinator, plan(1));
  worker.on(kCoordinator, plan(2));
  pass(limits::step_hard_ms - 100);
  done(1);
  pass(limits::step_hard_ms - 100);
  EXPECT_FALSE(executor.aborted);
}

TEST_F(WorkerActor, ABadModelIsPermanent) {
  worker.start();
  worker.on(kCoordinator, WorkerWelcome{kEpoch});
  executor.sink->on_failed({ErrorCode::malformed, "model", "is broken"}, true);
  EXPECT_EQ(exit, WorkerExit::bad_model);
}

TEST_F(WorkerActor, ALostCoordinatorEndsIt) {
  become_ready();
  worker.on_peer_lost(kCoordinator);
  EXPECT_EQ(exit, WorkerExit::failed);
  EXPECT_TRUE(executor.aborted);
}

TEST_F(WorkerActor, ShutdownWaitsForTheRunningStep) {
  become_ready();
  worker.on(kCoordinator, plan(1));
  worker.on(kCoordinator, Shutdown{kEpoch});
  EXPECT_FALSE(exit.has_value());
  done(1);
  EXPECT_EQ(exit, WorkerExit::ok);
}

TEST_F(WorkerActor, AnUnansweredRegistrationEndsIt) {
  worker.start();
  pass(2 * limits::handshake_ms + 100);
  EXPECT_EQ(exit, WorkerExit::failed);
}

}  // namespace
}  // namespace copse
