#include "coordinator/coordinator.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "coordinator/fake_world_for_test.h"
#include "scheduler/testing/oracle_device.h"

namespace copse {
namespace {

constexpr const char* kBuild = "test build";
const PeerId kGateway{Role::gateway, 0, 77};

// A coordinator, two worker ranks that the test speaks for, and one gateway.
struct World {
  explicit World(int ranks = 2, OracleModel m = {})
      : world_size(ranks),
        model(m),
        spawner(ranks),
        coordinator(options(ranks), link, spawner, clock) {
    clock.advance(milliseconds(1000));
    coordinator.start();
    coordinator.on(kGateway, RegisterGateway{kBuild});
  }
  static CoordinatorOptions options(int ranks) {
    CoordinatorOptions options;
    options.world_size = ranks;
    options.build = kBuild;
    return options;
  }
  PeerId peer(int rank) const {
    return {Role::worker, static_cast<std::uint16_t>(rank), 1000u * spawner.epoch + 5};
  }
  RegisterWorker registration(int rank) const {
    return {spawner.epoch, static_cast<std::uint16_t>(rank), static_cast<std::uint16_t>(world_size),
            spawner.pid(rank), kBuild};
  }
  void make_ready() {
    device = std::make_unique<OracleDevice>(model);
    for (int rank = 0; rank < world_size; ++rank) {
      coordinator.on(peer(rank), registration(rank));
      coordinator.on(peer(rank), model.ready(spawner.epoch));
    }
  }
  void submit(RequestId id, std::uint32_t prompt, std::uint32_t max_tokens) {
    Submit request;
    request.request = id;
    for (std::uint32_t i = 0; i < prompt; ++i)
      request.prompt.push_back(static_cast<TokenId>(i + 1));
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    requests[id] = request;
    coordinator.on(kGateway, request);
  }
  // Runs the plans that lie in the links; rank `liar` reports another digest.
  bool run_steps(int liar = -1) {
    const auto plans = link.take<StepPlan>(peer(0));
    for (int rank = 1; rank < world_size; ++rank) {
      EXPECT_EQ(link.take<StepPlan>(peer(rank)), plans);
    }
    for (const StepPlan& plan : plans) {
      StepResult result = device->run(plan).value();
      for (int rank = 0; rank < world_size; ++rank) {
        StepResult mine = result;
        for (SlotResult& slot : mine.slots) {
          if (rank != 0) slot.tokens.clear();
          if (rank == liar) ++slot.digest;
        }
        coordinator.on(peer(rank), mine);
      }
    }
    return !plans.empty();
  }
  void run_to_rest() {
    while (run_steps()) {
    }
  }
  void tick(std::int64_t ms) {
    for (std::int64_t t = 0; t < ms; t += 20) {
      clock.advance(milliseconds(20));
      if (workers_beat) {
        for (int rank = 0; rank < world_size; ++rank) {
          coordinator.on(peer(rank), WorkerHeartbeat{spawner.epoch, 0, false, 0});
        }
      }
      if (gateway_beats) coordinator.on(kGateway, GatewayHeartbeat{});
      coordinator.on_tick(clock.now());
    }
  }
  EngineStatus last_status() {
    const auto all = link.take<EngineStatus>(kGateway);
    return all.empty() ? EngineStatus{} : all.back();
  }
  void collect() {
    for (const Tokens& tokens : link.take<Tokens>(kGateway)) {
      auto& got = received[tokens.request];
      EXPECT_EQ(tokens.index, got.size());
      got.insert(got.end(), tokens.tokens.begin(), tokens.tokens.end());
    }
    for (const RequestFinished& end : link.take<RequestFinished>(kGateway)) {
      EXPECT_TRUE(finished.emplace(end.request, end).second);
    }
  }
  void expect_answer(RequestId id) {
    collect();
    EXPECT_EQ(received[id], model.answer(requests[id]).tokens);
    ASSERT_TRUE(finished.contains(id));
    EXPECT_EQ(finished[id].reason, FinishReason::length);
  }

  int world_size;
  OracleModel model;
  ManualClock clock;
  FakeLink link;
  FakeSpawner spawner;
  Coordinator coordinator;
  std::unique_ptr<OracleDevice> device;
  std::map<RequestId, Submit> requests;
  std::map<RequestId, std::vector<TokenId>> received;
  std::map<RequestId, RequestFinished> finished;
  bool workers_beat = true;
  bool gateway_beats = true;
};

TEST(Coordinator, ARequestRunsFromSubmitToItsEnd) {
  World world;
  EXPECT_EQ(world.last_status().state, GroupState::loading);
  world.make_ready();
  EXPECT_EQ(world.last_status().state, GroupState::ready);
  EXPECT_EQ(world.link.take<GatewayWelcome>(kGateway).back().context_tokens, 1024u);
  world.submit(1, 20, 50);
  world.submit(2, 200, 30);
  world.run_to_rest();
  world.expect_answer(1);
  world.expect_answer(2);
  world.tick(40);
  EXPECT_EQ(world.coordinator.open_requests(), 0u);
  EXPECT_EQ(world.coordinator.status().pages_used, 0u);
}

TEST(Coordinator, WhileLoadingRequestsAreToldToComeBack) {
  World world;
  world.submit(1, 20, 50);
  const auto refused = world.link.take<RequestRefused>(kGateway);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].kind, RefusalKind::unavailable);
  EXPECT_GT(refused[0].retry_after_s, 0u);
}

TEST(Coordinator, OnlyTheGroupsOwnWorkersRegister) {
  World world;
  const auto refused = [&](const PeerId& from, const RegisterWorker& message) {
    world.coordinator.on(from, message);
    return world.link.closed.contains(from) && !world.link.take<Shutdown>(from).empty();
  };
  RegisterWorker wrong = world.registration(0);
  wrong.build = "another build";
  wrong.pid = 4;
  EXPECT_TRUE(refused({Role::worker, 0, 1}, wrong));
  wrong = world.registration(0);
  wrong.world_size = 8;
  EXPECT_TRUE(refused({Role::worker, 0, 2}, wrong));
  wrong = world.registration(0);
  wrong.epoch = 9;
  EXPECT_TRUE(refused({Role::worker, 0, 3}, wrong));
  wrong = world.registration(0);
  wrong.rank = 8;
  EXPECT_TRUE(refused({Role::worker, 8, 4}, wrong));
  EXPECT_TRUE(refused({Role::worker, 1, 5}, world.registration(0)));
  world.coordinator.on(world.peer(0), world.registration(0));
  EXPECT_EQ(world.link.take<WorkerWelcome>(world.peer(0)).size(), 1u);
  EXPECT_TRUE(refused({Role::worker, 0, 6}, world.registration(0)));
  EXPECT_EQ(world.spawner.kills, 0) << "strangers do not end the group";
}

TEST(Coordinator, OurOwnWorkerOfAnotherBuildIsTheEnd) {
  World world;
  RegisterWorker wrong = world.registration(1);
  wrong.build = "another build";
  world.coordinator.on(world.peer(1), wrong);
  world.spawner.reap();
  world.tick(300);
  EXPECT_EQ(world.coordinator.exit_code(), 1);
  EXPECT_NE(world.last_status().cause.find("another build"), std::string::npos);
}

TEST(Coordinator, NothingIsPlannedBeforeTheLastRankIsReady) {
  World world;
  world.coordinator.on(world.peer(0), world.registration(0));
  world.coordinator.on(world.peer(0), world.model.ready(1));
  world.coordinator.on(world.peer(0), LoadProgress{1, "weights", 30, 40});
  const EngineStatus status = world.coordinator.status();
  EXPECT_EQ(status.state, GroupState::loading);
  EXPECT_TRUE(status.ranks[0].ready);
  EXPECT_EQ(status.ranks[0].load_done, 30u);
  EXPECT_FALSE(status.ranks[1].ready);
}

TEST(Coordinator, ALostWorkerRestartsTheGroupAndStreamsGoOn) {
  for (int steps = 0; steps < 8; ++steps) {
    World world;
    world.make_ready();
    world.submit(1, 20, 60);
    world.submit(2, 30, 40);
    for (int i = 0; i < steps; ++i) world.run_steps();
    world.spawner.exit(1, true, 9);
    EXPECT_EQ(world.coordinator.status().state, GroupState::recovering);
    EXPECT_EQ(world.link.epoch, 2u);
    world.spawner.reap();
    world.tick(40);
    EXPECT_EQ(world.spawner.spawns, 2);
    world.submit(3, 10, 10);  // waits for the restart
    world.make_ready();
    EXPECT_EQ(world.coordinator.status().restarts, 1u);
    world.run_to_rest();
    for (RequestId id : {1, 2, 3}) world.expect_answer(id);
  }
}

TEST(Coordinator, AnUnequalDigestIsNeverCommittedAndItsRankIsNamed) {
  World world(4);
  world.make_ready();
  world.submit(1, 20, 60);
  world.run_steps();
  world.collect();
  const std::size_t before = world.received[1].size();
  world.run_steps(2);
  world.collect();
  EXPECT_EQ(world.received[1].size(), before);
  EXPECT_NE(world.last_status().cause.find("the digest of rank 2 differs"), std::string::npos);
  world.spawner.reap();
  world.tick(40);
  world.make_ready();
  world.run_to_rest();
  world.expect_answer(1);
}

TEST(Coordinator, ResultsOfADeadEpochAreNotCommitted) {
  World world;
  world.make_ready();
  world.submit(1, 20, 60);
  const auto plans = world.link.take<StepPlan>(world.peer(0));
  const StepResult old = world.device->run(plans.at(0)).value();
  const PeerId old_peers[] = {world.peer(0), world.peer(1)};
  world.spawner.exit(1, true, 9);
  world.spawner.reap();
  world.tick(40);
  world.make_ready();
  for (const PeerId& peer : old_peers) world.coordinator.on(peer, old);
  world.collect();
  EXPECT_TRUE(world.received[1].empty());
  world.link.sent.clear();
}

TEST(Coordinator, AHangingStepEndsTheEpochAndNamesWhoIsLate) {
  World world;
  world.make_ready();
  world.submit(1, 20, 60);
  world.run_steps();
  const auto plans = world.link.take<StepPlan>(world.peer(0));
  StepResult result = world.device->run(plans.at(0)).value();
  world.coordinator.on(world.peer(0), result);
  world.tick(limits::step_hard_ms - 500);
  EXPECT_EQ(world.coordinator.status().state, GroupState::ready);
  world.tick(1000);
  EXPECT_EQ(world.coordinator.status().state, GroupState::recovering);
  EXPECT_NE(world.last_status().cause.find("no answer from rank 1"), std::string::npos);
}

TEST(Coordinator, ASilentWorkerEndsTheEpoch) {
  World world;
  world.make_ready();
  world.tick(3000);
  EXPECT_EQ(world.coordinator.status().state, GroupState::ready);
  world.workers_beat = false;
  world.tick(limits::heartbeat_timeout_ms + 100);
  EXPECT_EQ(world.coordinator.status().state, GroupState::recovering);
}

TEST(Coordinator, TheThirdFailureInTenMinutesIsTheEnd) {
  World world;
  world.make_ready();
  world.submit(1, 20, 60);
  for (int failure = 0; failure < 3; ++failure) {
    world.spawner.exit(0, true, 11);
    world.spawner.reap();
    world.tick(40);
    if (failure < 2) world.make_ready();
  }
  EXPECT_EQ(world.coordinator.status().state, GroupState::failed);
  world.collect();
  EXPECT_EQ(world.finished[1].reason, FinishReason::error);
  world.tick(300);
  EXPECT_EQ(world.coordinator.exit_code(), 1);
  EXPECT_EQ(world.spawner.spawns, 3);
}

TEST(Coordinator, APermanentFailureEndsAtOnceWithItsCause) {
  World world;
  world.coordinator.on(world.peer(0), world.registration(0));
  world.coordinator.on(world.peer(0), WorkerFailed{1, true, "the shard is truncated"});
  world.spawner.reap();
  world.tick(300);
  EXPECT_EQ(world.coordinator.exit_code(), 3);
  EXPECT_NE(world.last_status().cause.find("the shard is truncated"), std::string::npos);
}

TEST(Coordinator, AnExitWaitsForTheLastWords) {
  World world;
  world.coordinator.on(world.peer(0), world.registration(0));
  world.spawner.exit(0, false, 3);
  world.coordinator.on(world.peer(0), WorkerFailed{1, true, "a bad config"});
  world.spawner.reap();
  world.tick(400);
  EXPECT_NE(world.last_status().cause.find("a bad config"), std::string::npos);
}

TEST(Coordinator, ASpawnThatFailsBacksOff) {
  World world;
  world.make_ready();
  world.spawner.fails = true;
  world.spawner.exit(0, true, 9);
  world.spawner.reap();
  world.tick(100);
  EXPECT_EQ(world.spawner.spawns, 2);
  world.tick(700);
  EXPECT_EQ(world.spawner.spawns, 2) << "not at once again";
  world.tick(1000);
  EXPECT_EQ(world.coordinator.status().state, GroupState::failed);
}

TEST(Coordinator, ACancelledRequestEndsOnceWithItsReason) {
  World world;
  world.make_ready();
  world.submit(1, 20, 200);
  world.run_steps();
  world.coordinator.on(kGateway, Cancel{1, 1, FinishReason::stop});
  world.coordinator.on(kGateway, Cancel{1, 1, FinishReason::stop});
  world.run_to_rest();
  const auto ends = world.link.take<RequestFinished>(kGateway);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].reason, FinishReason::stop);
  EXPECT_EQ(ends[0].generated_tokens, 1u);
  world.tick(40);
  EXPECT_EQ(world.coordinator.status().pages_used, 0u);
}

TEST(Coordinator, ALostGatewaysRequestsAreCancelled) {
  World world;
  world.make_ready();
  world.submit(1, 20, 900);
  world.run_steps();
  world.gateway_beats = false;
  world.tick(limits::heartbeat_timeout_ms + 40);
  EXPECT_EQ(world.coordinator.open_requests(), 0u);
  world.run_to_rest();
  EXPECT_EQ(world.coordinator.status().pages_used, 0u);
}

TEST(Coordinator, AFullGatewayQueuePausesAndLosesNothing) {
  World world;
  world.make_ready();
  world.submit(1, 20, 60);
  world.run_steps();
  world.link.full.insert(kGateway);
  world.run_to_rest();
  EXPECT_EQ(world.coordinator.scheduler().running(), 1);
  EXPECT_EQ(world.coordinator.scheduler().plans_in_flight(), 0);
  world.link.full.clear();
  world.tick(40);
  world.run_to_rest();
  world.expect_answer(1);
}

TEST(Coordinator, ASlowClientPausesAloneAndIsCancelledInTheEnd) {
  World world;
  world.make_ready();
  world.submit(1, 20, 500);
  world.submit(2, 20, 100);
  world.run_steps();
  world.gateway_beats = false;
  GatewayHeartbeat slow;
  slow.backlogs.push_back({1, limits::stream_outbox_events});
  world.coordinator.on(kGateway, slow);
  world.run_to_rest();
  world.expect_answer(2);
  EXPECT_FALSE(world.finished.contains(1));
  for (int i = 0; i < 320; ++i) {
    world.tick(100);
    world.coordinator.on(kGateway, slow);
  }
  world.collect();
  ASSERT_TRUE(world.finished.contains(1));
  EXPECT_EQ(world.finished[1].reason, FinishReason::abort);
}

TEST(Coordinator, ADrainFinishesWhatIsOpenAndExitsWithZero) {
  World world;
  world.make_ready();
  world.submit(1, 20, 60);
  world.run_steps();
  world.coordinator.drain();
  world.submit(2, 10, 10);
  EXPECT_EQ(world.link.take<RequestRefused>(kGateway).at(0).kind, RefusalKind::unavailable);
  world.run_to_rest();
  world.expect_answer(1);
  world.tick(20);
  EXPECT_EQ(world.link.take<Shutdown>(world.peer(1)).size(), 1u);
  EXPECT_FALSE(world.coordinator.exit_code().has_value());
  world.spawner.exit(0, false, 0);
  world.spawner.exit(1, false, 0);
  world.tick(300);
  EXPECT_EQ(world.coordinator.exit_code(), 0);
}

TEST(Coordinator, ADrainEndsWithErrorsAfterItsTime) {
  World world;
  world.make_ready();
  world.submit(1, 20, 900);
  world.run_steps();
  world.link.take<StepPlan>(world.peer(0));
  world.coordinator.drain();
  world.tick(limits::drain_ms + 100);
  world.collect();
  EXPECT_EQ(world.finished[1].reason, FinishReason::error);
  world.tick(4000);
  world.spawner.reap();
  world.tick(300);
  EXPECT_EQ(world.coordinator.exit_code(), 0);
}

TEST(Coordinator, TheSecondDrainIsNow) {
  World world;
  world.make_ready();
  world.submit(1, 20, 900);
  world.coordinator.drain();
  world.coordinator.drain();
  EXPECT_EQ(world.coordinator.exit_code(), 130);
  EXPECT_GE(world.spawner.kills, 1);
}

}  // namespace
}  // namespace copse
