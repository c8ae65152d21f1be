// Well-formed frames of peers that are registered, with contents that nobody honest would send. The
// coordinator may end the group or the request, never itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "base/random.h"
#include "coordinator/coordinator.h"
#include "coordinator/fake_world_for_test.h"
#include "scheduler/testing/oracle_device.h"

namespace copse {
namespace {

constexpr const char* kBuild = "test build";
constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
const PeerId kGateway{Role::gateway, 0, 77};

// One rank and one gateway, for both of which the test speaks.
struct Lair {
  Lair() : coordinator(options(), link, spawner, clock) {
    clock.advance(milliseconds(1000));
    coordinator.start();
    coordinator.on(kGateway, RegisterGateway{kBuild});
  }
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.world_size = 1;
    options.build = kBuild;
    return options;
  }
  PeerId worker() const { return {Role::worker, 0, 1000u * spawner.epoch + 5}; }
  void register_worker() {
    coordinator.on(worker(), RegisterWorker{spawner.epoch, 0, 1, spawner.pid(0), kBuild});
  }
  void make_ready() {
    device = std::make_unique<OracleDevice>(model);
    register_worker();
    coordinator.on(worker(), model.ready(spawner.epoch));
  }
  void submit(RequestId id) {
    Submit request;
    request.request = id;
    request.prompt = {1, 2, 3};
    request.max_tokens = 40;
    request.ignore_end = true;
    coordinator.on(kGateway, request);
  }
  bool failed() const { return spawner.kills > 0; }

  OracleModel model;
  ManualClock clock;
  FakeLink link;
  FakeSpawner spawner{1};
  Coordinator coordinator;
  std::unique_ptr<OracleDevice> device;
};

// Now and then an extreme, else anything at all.
std::uint32_t wild(Random& random) {
  constexpr std::uint32_t kExtremes[] = {0, 1, 2, 63, 64, 65, 0x7FFFFFFF, 0x80000000, kMost};
  const std::uint64_t which = random.below(12);
  return which < 9 ? kExtremes[which] : static_cast<std::uint32_t>(random.next());
}

TEST(Forged, BoundsBeyondOurOwnAreTheGroupsEnd) {
  const auto end = [](void (*forge)(WorkerReady&)) {
    Lair lair;
    lair.register_worker();
    WorkerReady ready = lair.model.ready(lair.spawner.epoch);
    forge(ready);
    lair.coordinator.on(lair.worker(), ready);
    return lair.failed();
  };
  EXPECT_FALSE(end([](WorkerReady&) {}));
  EXPECT_TRUE(end([](WorkerReady& r) { r.slots = limits::batch_sequences + 1; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.pages = limits::pages + 1; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.context_tokens = limits::sequence_tokens + 1; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.context_tokens = kMost; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.vocabulary = limits::vocabulary + 1; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.draft_block = limits::draft_block + 1; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.end_tokens = {static_cast<TokenId>(r.vocabulary)}; }));
  EXPECT_TRUE(end([](WorkerReady& r) { r.end_tokens = {-1}; }));
  EXPECT_FALSE(end([](WorkerReady& r) {
    for (std::uint16_t nodes = 0; nodes < 32; ++nodes) {
      static_cast<void>(r.costs.try_push({static_cast<std::uint16_t>(nodes * 2047), NAN}));
    }
  }));
}

void forge(SlotResult& slot, Random& random) {
  switch (random.below(8)) {
    case 0:
      slot.slot = static_cast<std::uint16_t>(wild(random));
      break;
    case 1:
      slot.generation = wild(random);
      break;
    case 2:
      slot.length = wild(random);
      break;
    case 3:
      slot.draft_nodes = static_cast<std::uint16_t>(wild(random));
      break;
    case 4:
      slot.walk_length = static_cast<std::uint16_t>(wild(random));
      break;
    case 5:
      slot.tokens.clear();
      for (std::uint64_t n = random.below(33); n > 0; --n) {
        slot.tokens.push_back(static_cast<TokenId>(wild(random)));
      }
      break;
    default:
      slot.finish = static_cast<FinishReason>(
          random.below(static_cast<std::uint64_t>(kLastFinishReason) + 1));
  }
}

// Random lies in random results: each is believed harmlessly or ends the epoch.
TEST(Forged, ResultsNeverHarmTheCoordinator) {
  SeededRandom random(7);
  std::map<bool, int> ends;
  for (int world = 0; world < 2000; ++world) {
    Lair lair;
    lair.make_ready();
    for (RequestId id = 1; id <= 3; ++id) lair.submit(id);
    for (int step = 0; step < 12 && !lair.failed(); ++step) {
      for (const StepPlan& plan : lair.link.take<StepPlan>(lair.worker())) {
        auto ran = lair.device->run(plan);
        if (!ran.ok()) break;  // a believed lie makes plans that the honest device refuses
        StepResult& result = *ran;
        if (random.below(60) == 0) result.step = wild(random);
        if (random.below(8) == 0 && result.slots.size() > 0) {
          forge(result.slots[random.below(result.slots.size())], random);
        }
        result.timing.total_us = wild(random);
        lair.coordinator.on(lair.worker(), result);
        if (lair.failed()) break;
      }
    }
    ++ends[lair.failed()];
    // Whatever was believed, all that was held is given back: the coordinator checks it itself.
    lair.coordinator.on_peer_lost(kGateway);
    lair.clock.advance(milliseconds(20));
    lair.coordinator.on_tick(lair.clock.now());
  }
  EXPECT_GT(ends[true], 100);
  EXPECT_GT(ends[false], 100);
}

TEST(Forged, ProgressBeyondTheWholeIsHarmless) {
  Lair lair;
  lair.register_worker();
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  lair.coordinator.on(lair.worker(), LoadProgress{lair.spawner.epoch, "weights", kHuge, 1});
  lair.coordinator.on(lair.worker(), WorkerHeartbeat{lair.spawner.epoch, kHuge, true, kMost});
  EXPECT_FALSE(lair.failed());
}

// A gateway that has registered may say what it likes.
TEST(Forged, GatewaysNeverHarmTheCoordinatorOrTheGroup) {
  SeededRandom random(11);
  for (int world = 0; world < 500; ++world) {
    Lair lair;
    lair.make_ready();
    for (int i = 0; i < 40; ++i) {
      Submit request;
      request.request = random.below(8);
      for (std::uint64_t n = random.below(80); n > 0; --n) {
        request.prompt.push_back(random.below(9) == 0 ? static_cast<TokenId>(wild(random)) : 5);
      }
      request.max_tokens = random.below(2) == 0 ? wild(random) : 20;
      request.min_tokens = wild(random);
      request.ignore_end = random.below(2) == 0;
      if (random.below(4) == 0) request.stop_tokens = {static_cast<TokenId>(wild(random))};
      if (random.below(8) == 0) request.sampling.temperature = NAN;
      if (random.below(8) == 0) request.sampling.top_p = NAN;
      request.sampling.top_k = static_cast<std::int32_t>(wild(random));
      request.draft = static_cast<DraftMode>(random.below(4));
      request.node_budget = static_cast<std::uint16_t>(wild(random));
      lair.coordinator.on(kGateway, request);
      Cancel cancel{random.below(8), wild(random), static_cast<FinishReason>(random.below(5))};
      if (random.below(3) == 0) lair.coordinator.on(kGateway, cancel);
      GatewayHeartbeat heartbeat;
      static_cast<void>(heartbeat.backlogs.try_push({random.below(8), wild(random)}));
      lair.coordinator.on(kGateway, heartbeat);
      for (const StepPlan& plan : lair.link.take<StepPlan>(lair.worker())) {
        const auto ran = lair.device->run(plan);
        ASSERT_TRUE(ran.ok()) << "no plan breaks a rule: " << describe(ran.error());
        lair.coordinator.on(lair.worker(), *ran);
      }
    }
    EXPECT_FALSE(lair.failed());
    lair.coordinator.on_peer_lost(kGateway);
    while (true) {
      const auto plans = lair.link.take<StepPlan>(lair.worker());
      if (plans.empty()) break;
      for (const StepPlan& plan : plans) {
        lair.coordinator.on(lair.worker(), lair.device->run(plan).value());
      }
    }
    lair.coordinator.on_tick(lair.clock.now());
  }
}

}  // namespace
}  // namespace copse
