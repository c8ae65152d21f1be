#include "transport/collective/shm.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "transport/collective/ranks_for_test.h"
#include "transport/collective/tree_sum.h"

namespace copse {
namespace {

// Values whose sum depends on the order: magnitudes from 2^-12 to 2^12, both signs.
float value_at(int leaf, std::size_t i) {
  std::uint32_t h = static_cast<std::uint32_t>(leaf) * 0x9e3779b9u + static_cast<std::uint32_t>(i);
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  h ^= h >> 16;
  const std::uint32_t exponent = 115 + h % 25;
  return std::bit_cast<float>((h & 0x807fffffu) | exponent << 23);
}

// The sum of leaves [begin, end) as the tree says, written as it reads.
float tree_sum(int begin, int end, std::size_t i) {
  if (end - begin == 1) return value_at(begin, i);
  const int middle = (begin + end) / 2;
  return tree_sum(begin, middle, i) + tree_sum(middle, end, i);
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Rank r of n holds leaves [8r/n, 8(r+1)/n), so every world size must end with the same bits.
bool sums_eight_leaves(Collective& c, std::size_t count) {
  const int leaves = 8 / c.world_size();
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = tree_sum(c.rank() * leaves, (c.rank() + 1) * leaves, i);
  }
  if (!c.all_reduce_sum(values).ok()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!same_bits(values[i], tree_sum(0, 8, i))) return false;
  }
  return true;
}

bool sums_bf16(Collective& c, std::size_t count) {
  std::vector<Bf16> values(count);
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<float> parts;
    for (int r = 0; r < c.world_size(); ++r) {
      Bf16 part;
      const float exact = value_at(r, i);
      round_to_bf16(&part, &exact, 1);
      if (r == c.rank()) values[i] = part;
      parts.push_back(to_float(part));
    }
    for (std::size_t n = parts.size(); n > 1; n /= 2) {
      for (std::size_t k = 0; k < n / 2; ++k) parts[k] = parts[2 * k] + parts[2 * k + 1];
    }
    expected[i] = parts[0];
  }
  if (!c.all_reduce_sum(values).ok()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    Bf16 want;
    round_to_bf16(&want, &expected[i], 1);
    if (values[i].bits != want.bits) return false;
  }
  return true;
}

bool sums_u64(Collective& c, std::size_t count) {
  std::vector<std::uint64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = (~0ull - i) * static_cast<std::uint64_t>(c.rank() + 1);
  }
  if (!c.all_reduce_sum(values).ok()) return false;
  const auto n = static_cast<std::uint64_t>(c.world_size());
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != (~0ull - i) * (n * (n + 1) / 2)) return false;
  }
  return true;
}

std::byte byte_at(int rank, std::size_t i) {
  return static_cast<std::byte>((static_cast<std::size_t>(rank) * 31 + i * 7) & 0xff);
}

bool gathers(Collective& c, std::size_t count) {
  const auto n = static_cast<std::size_t>(c.world_size());
  std::vector<std::byte> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = byte_at(c.rank(), i);
  std::vector<std::byte> all(count * n, std::byte{0xee});
  if (!c.all_gather(mine, all).ok()) return false;
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      if (all[r * count + i] != byte_at(static_cast<int>(r), i)) return false;
    }
  }
  return true;
}

bool broadcasts(Collective& c, std::size_t count) {
  for (int root = 0; root < c.world_size(); ++root) {
    std::vector<std::byte> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = byte_at(c.rank(), i);
    if (!c.broadcast(values, root).ok()) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != byte_at(root, i)) return false;
    }
  }
  return true;
}

// Around the slot's size and far above it: one piece, a last piece of one element, many pieces.
bool does_everything(Collective& c) {
  for (const std::size_t count : {0u, 1u, 3u, 15u, 16u, 17u, 64u, 255u, 1000u, 5001u}) {
    const bool good = sums_eight_leaves(c, count) && sums_bf16(c, count) && sums_u64(c, count) &&
                      gathers(c, count) && broadcasts(c, count) && c.barrier().ok();
    if (!good) return false;
  }
  return true;
}

class ShmCollectiveTest : public testing::TestWithParam<int> {};

TEST_P(ShmCollectiveTest, ProcessesAgreeOnEveryOperation) {
  EXPECT_TRUE(processes_succeed({GetParam(), 1024}, does_everything));
}

TEST_P(ShmCollectiveTest, ThreadsAgreeOnEveryOperation) {
  EXPECT_TRUE(threads_succeed({GetParam(), 1024}, does_everything));
}

TEST_P(ShmCollectiveTest, SpinningChangesNothing) {
  const ShmJoin spinning{.spin = std::chrono::microseconds(50)};
  EXPECT_TRUE(processes_succeed({GetParam(), 1024}, does_everything, spinning));
}

TEST_P(ShmCollectiveTest, PinningChangesNothing) {
  EXPECT_TRUE(processes_succeed({GetParam(), 1024}, does_everything, {.pin = true}));
}

TEST_P(ShmCollectiveTest, TenThousandCallsInARow) {
  const auto body = [](Collective& c) {
    const auto n = static_cast<std::uint64_t>(c.world_size());
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      // Two kinds in turn and one rank ahead of the others now and then.
      if (i % 3 == 0 && c.rank() == static_cast<int>(i % n)) std::this_thread::yield();
      std::uint64_t value[2] = {i, static_cast<std::uint64_t>(c.rank())};
      if (!c.all_reduce_sum(value).ok()) return false;
      if (value[0] != i * n || value[1] != n * (n - 1) / 2) return false;
    }
    return c.stats().calls == 10'000 && c.stats().bytes == 160'000;
  };
  EXPECT_TRUE(processes_succeed({GetParam(), 256u << 10}, body));
}

TEST_P(ShmCollectiveTest, GathersInPlace) {
  const auto body = [](Collective& c) {
    std::vector<std::byte> all(static_cast<std::size_t>(c.world_size()) * 300);
    const auto mine = std::span(all).subspan(static_cast<std::size_t>(c.rank()) * 300, 300);
    for (std::size_t i = 0; i < 300; ++i) mine[i] = byte_at(c.rank(), i);
    if (!c.all_gather(mine, all).ok()) return false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != byte_at(static_cast<int>(i / 300), i % 300)) return false;
    }
    return true;
  };
  EXPECT_TRUE(processes_succeed({GetParam(), 64}, body));
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmCollectiveTest, testing::Values(1, 2, 4, 8),
                         [](const auto& tested) { return "Ranks" + std::to_string(tested.param); });

}  // namespace
}  // namespace copse
