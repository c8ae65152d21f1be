#include "transport/collective/tree_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace copse {
namespace {

std::uint16_t rounded(float value) {
  Bf16 out;
  round_to_bf16(&out, &value, 1);
  return out.bits;
}

TEST(TreeSum, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(rounded(1.0f), 0x3f80);
  EXPECT_EQ(rounded(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(rounded(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(rounded(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(rounded(std::bit_cast<float>(0x3f807fffu)), 0x3f80);
  EXPECT_EQ(rounded(-0.0f), 0x8000);
}

TEST(TreeSum, RoundsTheEndsOfTheRange) {
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), 0x7f80);  // up to infinity
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(rounded(std::numeric_limits<float>::denorm_min()), 0x0000);
  // A NaN whose rounding would carry into the sign.
  EXPECT_EQ(rounded(std::bit_cast<float>(0x7fffffffu)), 0x7fff);
  EXPECT_EQ(rounded(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

TEST(TreeSum, EveryBf16SurvivesWideningAndRounding) {
  std::vector<Bf16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  widen(wide.data(), all.data(), all.size());
  std::vector<Bf16> back(all.size());
  round_to_bf16(back.data(), wide.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wide[i])) {
      ASSERT_EQ(back[i].bits, all[i].bits | 0x40);
    } else {
      ASSERT_EQ(back[i].bits, all[i].bits);
    }
  }
}

TEST(TreeSum, AddsRaggedCounts) {
  for (const std::size_t count : {0u, 1u, 3u, 7u, 17u, 100u}) {
    std::vector<float> sum(count + 1, 1.5f);
    const std::vector<float> other(count, 0.25f);
    add_into(sum.data(), other.data(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], 1.75f);
    EXPECT_EQ(sum[count], 1.5f);
    std::vector<std::uint64_t> wrapped(count, ~0ull);
    const std::vector<std::uint64_t> two(count, 2);
    add_into(wrapped.data(), two.data(), count);
    for (const std::uint64_t value : wrapped) ASSERT_EQ(value, 1u);
  }
}

}  // namespace
}  // namespace copse
