#include "transport/actor/endpoint.h"

#include <gtest/gtest.h>

#include <string>

#include "transport/messages/codec.h"

namespace copse {
namespace {

const PeerId kCoordinator{Role::coordinator, 0, 11};
const PeerId kWorker{Role::worker, 3, 22};
const PeerId kGateway{Role::gateway, 0, 33};

using Verdict = Endpoint::Verdict;

// A coordinator's end in epoch 5, and a worker's that sends to it.
struct Ends {
  Ends() {
    coordinator.set_epoch(5);
    worker.set_epoch(5);
  }
  std::vector<std::byte> from_worker() {
    return worker.stamp(kCoordinator, Kind::worker_heartbeat, encode(WorkerHeartbeat{}));
  }
  Verdict arrive(const std::vector<std::byte>& frame) {
    return coordinator.judge(kWorker, frame).verdict;
  }
  Endpoint coordinator{kCoordinator};
  Endpoint worker{kWorker};
};

TEST(PeerId, HasOneSpelling) {
  const PeerId peer{Role::worker, 3, 0xdeadbeef};
  EXPECT_EQ(to_string(peer), "worker.3.00000000deadbeef");
  EXPECT_EQ(*parse_peer_id("worker.3.00000000deadbeef"), peer);
  const PeerId last{Role::gateway, 65535, ~std::uint64_t{0}};
  EXPECT_EQ(*parse_peer_id(to_string(last)), last);
  EXPECT_EQ(*parse_peer_id(to_string(kCoordinator)), kCoordinator);
}

TEST(PeerId, RefusesEveryOtherText) {
  for (const char* text :
       {"", ".", "..", "worker", "worker.3", "worker.3.", "worker.3.deadbeef",
        "worker.03.00000000deadbeef", "worker.3.00000000DEADBEEF", "worker.+3.00000000deadbeef",
        "worker.65536.00000000deadbeef", "worker.-1.00000000deadbeef", "Worker.3.00000000deadbeef",
        "router.3.00000000deadbeef", "worker.3.00000000deadbeef ", "worker.3.00000000deadbeef.1",
        " worker.3.00000000deadbeef", "worker.3.000000000deadbeef"}) {
    EXPECT_FALSE(parse_peer_id(text).ok()) << text;
  }
}

TEST(Endpoint, AcceptsAStreamInOrder) {
  Ends ends;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::accept);
  EXPECT_EQ(ends.coordinator.dropped(), 0u);
}

TEST(Endpoint, HandsOverWhatWasSent) {
  Ends ends;
  const auto frame = ends.from_worker();
  const auto judged = ends.coordinator.judge(kWorker, frame);
  ASSERT_TRUE(judged.message.has_value());
  EXPECT_EQ(judged.message->from, kWorker);
  EXPECT_EQ(judged.message->frame.header.kind, Kind::worker_heartbeat);
  EXPECT_TRUE(decode<WorkerHeartbeat>(judged.message->frame.body).ok());
}

TEST(Endpoint, DropsRepeats) {
  Ends ends;
  const auto first = ends.from_worker();
  const auto second = ends.from_worker();
  EXPECT_EQ(ends.arrive(first), Verdict::accept);
  EXPECT_EQ(ends.arrive(second), Verdict::accept);
  EXPECT_EQ(ends.arrive(first), Verdict::drop);
  EXPECT_EQ(ends.arrive(second), Verdict::drop);
  EXPECT_EQ(ends.coordinator.dropped(), 2u);
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::accept);
}

TEST(Endpoint, EndsAStreamAtAGap) {
  Ends ends;
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::accept);
  const auto lost = ends.from_worker();
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::lost);
  // Once, and nothing of that peer afterwards, the lost frame itself included.
  EXPECT_EQ(ends.arrive(lost), Verdict::drop);
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::drop);
  EXPECT_TRUE(ends.coordinator.closed(kWorker));
}

TEST(Endpoint, DropsOtherEpochsOfTheGroup) {
  Ends ends;
  ends.worker.set_epoch(4);
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::drop);
  ends.worker.set_epoch(6);
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::drop);
  EXPECT_EQ(ends.coordinator.dropped(), 2u);
  // The worker's end judges the coordinator's frames by the same rule.
  const auto shutdown = ends.coordinator.stamp(kWorker, Kind::shutdown, encode(Shutdown{}));
  EXPECT_EQ(ends.worker.judge(kCoordinator, shutdown).verdict, Verdict::drop);
}

TEST(Endpoint, TakesGatewaysOfAnyEpoch) {
  Ends ends;
  Endpoint gateway(kGateway);
  const auto frame = gateway.stamp(kCoordinator, Kind::cancel, encode(Cancel{}));
  EXPECT_EQ(ends.coordinator.judge(kGateway, frame).verdict, Verdict::accept);
}

TEST(Endpoint, DropsWhoClaimsToBeSomebodyElse) {
  Ends ends;
  for (const PeerId& forger :
       {PeerId{Role::worker, 2, 22}, PeerId{Role::worker, 3, 23}, PeerId{Role::gateway, 3, 22}}) {
    EXPECT_EQ(ends.coordinator.judge(forger, ends.from_worker()).verdict, Verdict::drop);
  }
  EXPECT_EQ(ends.coordinator.dropped(), 3u);
}

TEST(Endpoint, DropsWhatIsNoFrame) {
  Ends ends;
  auto frame = ends.from_worker();
  frame.back() ^= std::byte{1};
  EXPECT_EQ(ends.arrive(frame), Verdict::drop);
  EXPECT_EQ(ends.arrive({}), Verdict::drop);
  EXPECT_EQ(ends.coordinator.dropped(), 2u);
}

TEST(Endpoint, KeepsTheStreamsOfItsPeersApart) {
  Endpoint coordinator(kCoordinator);
  Endpoint one({Role::gateway, 0, 1});
  Endpoint two({Role::gateway, 0, 2});
  const auto first = coordinator.stamp(one.self(), Kind::tokens, {});
  const auto second = coordinator.stamp(two.self(), Kind::tokens, {});
  EXPECT_EQ(one.judge(kCoordinator, first).verdict, Verdict::accept);
  EXPECT_EQ(two.judge(kCoordinator, second).verdict, Verdict::accept);
}

TEST(Endpoint, BeginsAgainWithAForgottenPeer) {
  Ends ends;
  const auto frame = ends.from_worker();
  EXPECT_EQ(ends.arrive(frame), Verdict::accept);
  ends.coordinator.close(kWorker);
  EXPECT_EQ(ends.arrive(ends.from_worker()), Verdict::drop);
  ends.coordinator.forget(kWorker);
  EXPECT_EQ(ends.arrive(frame), Verdict::accept);
}

// Peers come and go for as long as a coordinator lives: what it remembers of them is bounded, and
// those who left make room for those who come.
TEST(Endpoint, RemembersABoundedNumberOfPeers) {
  Endpoint coordinator(kCoordinator);
  for (std::uint64_t i = 1; i <= 5000; ++i) {
    Endpoint gateway({Role::gateway, 0, i});
    const auto frame = gateway.stamp(kCoordinator, Kind::cancel, {});
    ASSERT_EQ(coordinator.judge(gateway.self(), frame).verdict, Verdict::accept) << i;
    coordinator.close(gateway.self());
  }
}

TEST(Endpoint, RefusesReplaysAMillionTimes) {
  Ends ends;
  std::vector<std::vector<std::byte>> seen;
  for (int i = 0; i < 100; ++i) seen.push_back(ends.from_worker());
  for (const auto& frame : seen) EXPECT_EQ(ends.arrive(frame), Verdict::accept);
  ends.coordinator.set_epoch(6);
  int accepted = 0;
  for (std::size_t i = 0; i < 1000000; ++i) {
    if (ends.arrive(seen[i % seen.size()]) != Verdict::drop) ++accepted;
  }
  EXPECT_EQ(accepted, 0);
}

}  // namespace
}  // namespace copse
