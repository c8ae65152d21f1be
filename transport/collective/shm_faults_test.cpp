#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "transport/collective/ranks_for_test.h"
#include "transport/collective/shm.h"

namespace copse {
namespace {

using std::chrono::steady_clock;

constexpr ShmJoin quick{.timeout = milliseconds(200), .spin = {}};
// Timeout plus a loaded machine's delays; still far below the default of ten seconds.
constexpr Duration bound = milliseconds(3000);

// Calls until the group fails: with `code`, within the bound of the last good call, and from then
// on without waiting.
bool fails_with(Collective& c, ErrorCode code) {
  std::array<float, 64> values{};
  auto last_good = steady_clock::now();
  Status status = c.all_reduce_sum(values);
  while (status.ok()) {
    last_good = steady_clock::now();
    status = c.all_reduce_sum(values);
  }
  const bool in_time = steady_clock::now() - last_good < bound;
  const auto again = steady_clock::now();
  const Status second = c.barrier();
  return in_time && status.error().code == code && !second.ok() && second.error().code == code &&
         steady_clock::now() - again < milliseconds(1000);
}

class ShmLostPeer : public testing::TestWithParam<int> {};  // the signal that stops one rank

TEST_P(ShmLostPeer, EndsEveryCallInTime) {
  const TestRegion region({4, 4096});
  const auto pids =
      fork_ranks(region, quick, [](Collective& c) { return fails_with(c, ErrorCode::deadline); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(pids[2], GetParam());
  for (const std::size_t r : {0u, 1u, 3u}) EXPECT_TRUE(succeeded(pids[r])) << "rank " << r;
  kill(pids[2], SIGKILL);
  EXPECT_FALSE(succeeded(pids[2]));
}

INSTANTIATE_TEST_SUITE_P(Signals, ShmLostPeer, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& tested) {
                           return tested.param == SIGKILL ? "Killed" : "Stopped";
                         });

TEST(ShmFaults, StoppedPeerFindsTheGroupFinishedWhenItGoesOn) {
  const TestRegion region({2, 4096});
  const auto pids =
      fork_ranks(region, quick, [](Collective& c) { return fails_with(c, ErrorCode::deadline); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(pids[1], SIGSTOP);
  EXPECT_TRUE(succeeded(pids[0]));
  kill(pids[1], SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(pids[1], &status, 0), pids[1]);  // ends; its own bound was passed while stopped
  EXPECT_TRUE(WIFEXITED(status));
}

TEST(ShmFaults, NamesTheRankThatNeverCame) {
  const TestRegion region({4, 4096});
  // Long enough for the other three to come on a loaded machine.
  const ShmJoin patient{.timeout = milliseconds(1000)};
  const auto body = [](Collective& c) {
    const Status status = c.barrier();
    return !status.ok() && status.error().code == ErrorCode::deadline &&
           status.error().message.find("rank 3 did not come") != std::string::npos;
  };
  std::vector<pid_t> pids;
  for (int r = 0; r < 3; ++r) pids.push_back(fork_rank(region, r, patient, body));
  for (const pid_t pid : pids) EXPECT_TRUE(succeeded(pid));
}

TEST(ShmFaults, SupervisorAbortsThroughItsMapping) {
  const TestRegion region({8, 4096});
  ShmRegion supervisor = ShmRegion::attach(region.fd()).value();
  const auto pids = fork_ranks(region, {}, [](Collective& c) {
    if (c.rank() != 5) return fails_with(c, ErrorCode::aborted);
    // One rank is slow, so that the others sleep in a call when the abort comes.
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return fails_with(c, ErrorCode::aborted);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = steady_clock::now();
  supervisor.abort();
  for (const std::size_t r : {0u, 1u, 2u, 3u, 4u, 6u, 7u}) EXPECT_TRUE(succeeded(pids[r]));
  EXPECT_LT(steady_clock::now() - start, std::chrono::milliseconds(1500));
  EXPECT_TRUE(succeeded(pids[5]));
}

TEST(ShmFaults, AnyThreadAbortsWhileAnotherWaits) {
  const TestRegion region({2, 4096});
  ShmRegion shared = ShmRegion::attach(region.fd()).value();
  const auto waiting = shared.join(0, 2).value();
  const auto other = shared.join(1, 2).value();
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other->abort();
    other->abort();
  });
  EXPECT_EQ(waiting->barrier().error().code, ErrorCode::aborted);
  aborter.join();
  EXPECT_EQ(other->barrier().error().code, ErrorCode::aborted);
}

// Every rank but one makes the same call; all of them hear of it, and none gets a sum.
bool disagreement(const RankBody& usual, const RankBody& odd, const std::string& expected) {
  return threads_succeed({4, 1024}, [&](Collective& c) {
    const RankBody& call = c.rank() == 1 ? odd : usual;
    if (!call(c)) return false;
    const Status after = c.barrier();
    return !after.ok() && after.error().code == ErrorCode::internal &&
           after.error().message.find(expected) != std::string::npos &&
           after.error().message.find("rank 1 called") != std::string::npos;
  });
}

RankBody fails_float(std::size_t count) {
  return [count](Collective& c) {
    std::vector<float> values(count, 1.0f);
    return !c.all_reduce_sum(values).ok();
  };
}

TEST(ShmFaults, ReportsASizeThatDiffers) {
  EXPECT_TRUE(disagreement(fails_float(16), fails_float(17), "68 bytes"));
  // Equal first pieces, unequal payloads.
  EXPECT_TRUE(disagreement(fails_float(1000), fails_float(1001), "4004 bytes"));
}

TEST(ShmFaults, ReportsAnOperationThatDiffers) {
  EXPECT_TRUE(disagreement(
      fails_float(16),
      [](Collective& c) {
        std::vector<std::uint64_t> values(8);
        return !c.all_reduce_sum(values).ok();
      },
      "all_reduce_sum(uint64)"));
  EXPECT_TRUE(disagreement(
      fails_float(16), [](Collective& c) { return !c.barrier().ok(); }, "barrier"));
}

TEST(ShmFaults, ReportsARootThatDiffers) {
  const auto from = [](int root) -> RankBody {
    return [root](Collective& c) {
      std::vector<std::byte> values(64);
      return !c.broadcast(values, root).ok();
    };
  };
  EXPECT_TRUE(disagreement(from(0), from(2), "broadcast"));
}

TEST(ShmRegionTest, RefusesWhatCannotBe) {
  EXPECT_EQ(create_shm_region({3, 4096}).error().field, "world_size");
  EXPECT_EQ(create_shm_region({0, 4096}).error().field, "world_size");
  EXPECT_EQ(create_shm_region({2, 0}).error().field, "slot_bytes");
  EXPECT_EQ(create_shm_region({2, 100}).error().field, "slot_bytes");
  EXPECT_EQ(create_shm_region({2, 1u << 30}).error().field, "slot_bytes");
  const TestRegion region({2, 4096});
  EXPECT_EQ(join_shm(region.fd(), 0, 4).error().field, "world_size");
  EXPECT_EQ(join_shm(region.fd(), 2, 2).error().field, "rank");
  EXPECT_EQ(join_shm(region.fd(), -1, 2).error().field, "rank");
  ASSERT_TRUE(join_shm(region.fd(), 0, 2).ok());
  EXPECT_EQ(join_shm(region.fd(), 0, 2).error().field, "rank");  // once per epoch
}

TEST(ShmRegionTest, RefusesDescriptorsOfOtherThings) {
  EXPECT_EQ(ShmRegion::attach(-1).error().code, ErrorCode::io);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(ShmRegion::attach(null).error().code, ErrorCode::malformed);
  close(null);
  const int zeros = memfd_create("zeros", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(zeros, 1 << 20), 0);
  EXPECT_EQ(ShmRegion::attach(zeros).error().code, ErrorCode::malformed);  // could still shrink
  ASSERT_EQ(fcntl(zeros, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(ShmRegion::attach(zeros).error().code, ErrorCode::malformed);  // no header
  close(zeros);
}

TEST(ShmRegionTest, CannotBeShrunkUnderARank) {
  const TestRegion region({2, 4096});
  EXPECT_NE(ftruncate(region.fd(), 0), 0);
}

}  // namespace
}  // namespace copse
