#include "transport/actor/sim.h"

#include <gtest/gtest.h>

#include <string>

namespace copse {
namespace {

// A hub that answers each Cancel by Tokens of the same number.
struct Hub {
  using Receives = MessageList<Cancel>;
  void on(const PeerId& from, const Cancel& cancel) {
    seen.push_back(cancel.request);
    link->send(from, Tokens{.request = cancel.request, .tokens = {}});
  }
  void on_peer_lost(const PeerId&) { ++lost; }
  void on_tick(Instant) { ++ticks; }
  Link* link = nullptr;
  std::vector<RequestId> seen;
  int lost = 0;
  int ticks = 0;
};

struct Leaf {
  using Receives = MessageList<Tokens>;
  void on(const PeerId&, const Tokens& tokens) { seen.push_back(tokens.request); }
  void on_peer_lost(const PeerId&) { ++lost; }
  void on_tick(Instant) { ++ticks; }
  std::vector<RequestId> seen;
  int lost = 0;
  int ticks = 0;
};

constexpr PeerId kAnyHub{Role::coordinator, 0, 0};

struct Pair {
  explicit Pair(std::uint64_t seed = 1) : world(seed) {
    hub_node = world.add_node({Role::coordinator, 0, 10});
    leaf_node = world.add_node({Role::gateway, 0, 20});
    hub.link = &world.link(hub_node);
    world.attach(hub_node, hub);
    world.attach(leaf_node, leaf);
  }
  SendResult ask(RequestId request) {
    return world.link(leaf_node).send(kAnyHub, Cancel{.request = request});
  }
  SimWorld world;
  SimNode hub_node;
  SimNode leaf_node;
  Hub hub;
  Leaf leaf;
};

TEST(SimWorld, CarriesMessagesInOrder) {
  Pair pair;
  for (RequestId request = 0; request < 50; ++request) EXPECT_EQ(pair.ask(request), SendResult::ok);
  pair.world.run_for(milliseconds(100));
  ASSERT_EQ(pair.hub.seen.size(), 50u);
  for (RequestId request = 0; request < 50; ++request) EXPECT_EQ(pair.hub.seen[request], request);
  EXPECT_EQ(pair.leaf.seen, pair.hub.seen);
  EXPECT_EQ(pair.world.messages_under_way(), 0u);
}

TEST(SimWorld, MovesTimeByEventsAlone) {
  Pair pair;
  pair.world.run_for(milliseconds(1000));
  EXPECT_EQ(pair.world.clock().now(), Instant(milliseconds(1000)));
  EXPECT_EQ(pair.hub.ticks, 50);
  EXPECT_EQ(pair.leaf.ticks, 50);
}

TEST(SimWorld, ExpectsSingleMessages) {
  Pair pair;
  pair.ask(7);
  const auto cancel = pair.world.expect<Cancel>(pair.leaf_node, pair.hub_node);
  ASSERT_TRUE(cancel.has_value());
  EXPECT_EQ(cancel->request, 7u);
  EXPECT_EQ(pair.world.expect<Tokens>(pair.hub_node, pair.leaf_node)->request, 7u);
  EXPECT_FALSE(pair.world.expect<Tokens>(pair.hub_node, pair.leaf_node).has_value());
  EXPECT_EQ(pair.world.count(pair.leaf_node, pair.hub_node, Kind::cancel), 1u);
}

TEST(SimWorld, IsTheSameWorldForTheSameSeed) {
  const auto life = [](std::uint64_t seed) {
    Pair pair(seed);
    pair.world.set_faults({.disconnect = 0.01, .duplicate = 0.1, .bit_flip = 0.01, .stall = 0.1});
    for (RequestId request = 0; request < 200; ++request) {
      pair.ask(request);
      pair.world.run_for(milliseconds(5));
    }
    return pair.world.event_hash();
  };
  EXPECT_EQ(life(5), life(5));
  EXPECT_NE(life(5), life(6));
}

TEST(SimWorld, FillsTheQueueOfAPausedNode) {
  Pair pair;
  pair.world.pause(pair.hub_node, true);
  int accepted = 0;
  while (pair.ask(0) == SendResult::ok) {
    pair.world.run_for(milliseconds(5));
    ASSERT_LT(++accepted, 1000);
  }
  EXPECT_EQ(accepted, 2 * limits::link_high_water_mark);
  EXPECT_EQ(pair.ask(0), SendResult::full);
  const int ticks = pair.hub.ticks;
  pair.world.run_for(milliseconds(500));
  EXPECT_EQ(pair.hub.ticks, ticks);
  EXPECT_TRUE(pair.hub.seen.empty());
  pair.world.pause(pair.hub_node, false);
  EXPECT_EQ(pair.hub.seen.size(), static_cast<std::size_t>(accepted));
  EXPECT_EQ(pair.ask(0), SendResult::ok);
}

TEST(SimWorld, LosesASuffixAtADisconnection) {
  Pair pair;
  pair.ask(1);
  ASSERT_TRUE(pair.world.expect<Cancel>(pair.leaf_node, pair.hub_node).has_value());
  pair.ask(2);
  pair.world.disconnect(pair.leaf_node);
  pair.world.run_for(milliseconds(50));
  EXPECT_EQ(pair.hub.seen, std::vector<RequestId>{1});
  EXPECT_TRUE(pair.leaf.seen.empty());  // the answer to 1 was lost too
  EXPECT_EQ(pair.leaf.lost, 1);
  pair.ask(3);  // as another peer, whose stream begins anew
  pair.world.run_for(milliseconds(50));
  EXPECT_EQ(pair.hub.seen, (std::vector<RequestId>{1, 3}));
  EXPECT_EQ(pair.leaf.seen, std::vector<RequestId>{3});
}

TEST(SimWorld, ShowsAFlippedBitAsAGap) {
  Pair pair;
  pair.ask(1);
  pair.world.run_for(milliseconds(50));
  pair.world.set_faults({.bit_flip = 1});
  pair.ask(2);
  pair.world.set_faults({});
  pair.world.run_for(milliseconds(50));
  EXPECT_EQ(pair.hub.seen, std::vector<RequestId>{1});
  EXPECT_EQ(pair.hub.lost, 0);
  pair.ask(3);
  pair.world.run_for(milliseconds(50));
  EXPECT_EQ(pair.hub.seen, std::vector<RequestId>{1});
  EXPECT_EQ(pair.hub.lost, 1);
}

TEST(SimWorld, DropsRepeatsAndForgeries) {
  Pair pair;
  pair.world.set_faults({.duplicate = 1});
  for (RequestId request = 0; request < 20; ++request) pair.ask(request);
  pair.world.run_for(milliseconds(2000));
  EXPECT_EQ(pair.hub.seen.size(), 20u);
  EXPECT_EQ(pair.leaf.seen.size(), 20u);
  EXPECT_EQ(pair.world.link(pair.hub_node).stale_messages(), 20u);
  const auto frame = pair.world.recorded().back();
  pair.world.inject({Role::gateway, 0, 21}, pair.hub_node, frame);  // not the name in the frame
  pair.world.run_for(milliseconds(10));
  EXPECT_EQ(pair.world.link(pair.hub_node).stale_messages(), 21u);
}

TEST(SimWorld, CrashesAtEveryMessageBoundary) {
  for (std::uint64_t boundary = 1; boundary <= 10; ++boundary) {
    Pair pair;
    pair.world.crash_after(pair.hub_node, boundary);
    for (RequestId request = 0; request < 10; ++request) pair.ask(request);
    pair.world.run_for(milliseconds(100));
    EXPECT_FALSE(pair.world.alive(pair.hub_node));
    EXPECT_EQ(pair.hub.seen.size(), boundary);
    EXPECT_EQ(pair.leaf.lost, 1);
    EXPECT_EQ(pair.ask(0), SendResult::closed);
  }
}

TEST(SimWorld, GoesOnWithTheNextCoordinator) {
  Pair pair;
  pair.ask(1);
  pair.world.run_for(milliseconds(50));
  pair.world.crash(pair.hub_node);
  pair.world.run_for(milliseconds(50));
  Hub next;
  const SimNode node = pair.world.add_node({Role::coordinator, 0, 11});
  next.link = &pair.world.link(node);
  pair.world.attach(node, next);
  pair.ask(2);
  pair.world.run_for(milliseconds(50));
  EXPECT_EQ(next.seen, std::vector<RequestId>{2});
  EXPECT_EQ(pair.leaf.seen, (std::vector<RequestId>{1, 2}));
}

TEST(SimWorld, TellsItsLastEvents) {
  Pair pair;
  pair.ask(1);
  pair.world.run_for(milliseconds(50));
  EXPECT_NE(pair.world.trace().find("message to coordinator.0.000000000000000a"),
            std::string::npos);
}

// Faults are there in some worlds and absent in others, so that each shows alone.
TEST(SimFaults, AreDrawnPerSeed) {
  int with = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SeededRandom random(seed);
    const SimFaults faults = SimFaults::drawn(random);
    if (faults.duplicate > 0) ++with;
    EXPECT_LE(faults.disconnect, 0.02);
  }
  EXPECT_GT(with, 20);
  EXPECT_LT(with, 80);
}

}  // namespace
}  // namespace copse
