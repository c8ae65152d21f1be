#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"

namespace copse::kernels {
namespace {

using testing::Fill;
using testing::Guarded;
using testing::Inputs;

TEST(RopeTable, PlainFrequencies) {
  const RopeTable table = make_rope_table({.dim = 64, .theta = 10000.0});
  ASSERT_EQ(table.dim(), 64);
  EXPECT_EQ(table.inv_freq[0], 1.0f);
  for (int i = 0; i < 32; ++i) {
    const double exact = std::pow(10000.0, -2.0 * i / 64);
    EXPECT_TRUE(within_tolerance(table.inv_freq[static_cast<std::size_t>(i)], exact, exact, 16));
  }
}

// The published correction ranges: DeepSeek-V3 10 .. 23, Kimi-K2 19 .. 20, K2.5 8 .. 20.
TEST(RopeTable, YarnKeepsFastPairsAndDividesSlowOnes) {
  struct Case {
    RopeSpec spec;
    int low, high;
  };
  const Case cases[] = {
      {{.dim = 64, .theta = 1e4, .factor = 40, .original_positions = 4096}, 10, 23},
      {{.dim = 64, .theta = 5e4, .factor = 32, .original_positions = 4096, .beta_fast = 1}, 19, 20},
      {{.dim = 64, .theta = 5e4, .factor = 64, .original_positions = 4096}, 8, 20},
      {{.dim = 128, .theta = 5e4, .factor = 64, .original_positions = 4096}, 17, 39}};
  for (const Case& c : cases) {
    const RopeTable yarn = make_rope_table(c.spec);
    const RopeTable plain = make_rope_table({.dim = c.spec.dim, .theta = c.spec.theta});
    for (int i = 0; i < c.spec.dim / 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double kept = plain.inv_freq[at];
      const double ramp = std::clamp(static_cast<double>(i - c.low) / (c.high - c.low), 0.0, 1.0);
      const double exact = kept * (1 - ramp) + kept / c.spec.factor * ramp;
      EXPECT_TRUE(within_tolerance(yarn.inv_freq[at], exact, kept, 8)) << i;
    }
  }
}

TEST(RopeTable, Mscale) {
  EXPECT_EQ(yarn_mscale(1.0, 1.0), 1.0);
  EXPECT_NEAR(yarn_mscale(64.0, 1.0), 1.415888, 1e-6);
  const double scale = yarn_mscale(40.0, 1.0);
  EXPECT_NEAR(scale * scale / std::sqrt(192.0), 0.135234, 1e-6);  // DeepSeek-V3's softmax scale
}

class Rope : public ::testing::TestWithParam<RopePairs> {};

TEST_P(Rope, RotatesPairsByTheAngle) {
  const RopePairs pairs = GetParam();
  for (const int dim : {2, 32, 64, 128}) {
    for (const Fill fill : testing::fills) {
      const RopeTable table =
          make_rope_table({.dim = dim, .theta = 10000.0, .attention_factor = 1.25});
      const std::vector<std::int32_t> positions = {0, 1, 77, 4095, 262143};
      const int rows = static_cast<int>(positions.size());
      constexpr int heads = 3;
      std::vector<float> angles(positions.size() * static_cast<std::size_t>(dim));
      rope_angles(table, positions, angles);
      Inputs values(fill);
      Guarded x(rows * heads, dim, testing::nan_poison);
      x.fill(values);
      Guarded before = x;
      Guarded reference = x;
      const auto heads_of = [&](Guarded& memory) {
        return RopeHeads{memory.view().data, rows, heads, heads * memory.view().stride,
                         memory.view().stride};
      };
      ThreadPool pool(2);
      rope(heads_of(x), angles, dim, pairs, pool);
      ref::rope(heads_of(reference), angles, dim, pairs);
      EXPECT_TRUE(x.intact());
      for (int r = 0; r < rows * heads; ++r) {
        for (int i = 0; i < dim; ++i) {
          ASSERT_TRUE(testing::same(x.view().row(r)[i], reference.view().row(r)[i]));
        }
        for (int i = 0; i < dim / 2; ++i) {
          const int a = pairs == RopePairs::interleaved ? 2 * i : i;
          const int b = pairs == RopePairs::interleaved ? 2 * i + 1 : i + dim / 2;
          const float angle = static_cast<float>(positions[static_cast<std::size_t>(r / heads)]) *
                              table.inv_freq[static_cast<std::size_t>(i)];
          const double from_a = before.view().row(r)[a];
          const double from_b = before.view().row(r)[b];
          const double cosine = 1.25 * std::cos(static_cast<double>(angle));
          const double sine = 1.25 * std::sin(static_cast<double>(angle));
          const double magnitude = 1.25 * (std::abs(from_a) + std::abs(from_b));
          ASSERT_TRUE(
              within_tolerance(x.view().row(r)[a], from_a * cosine - from_b * sine, magnitude, 6));
          ASSERT_TRUE(
              within_tolerance(x.view().row(r)[b], from_b * cosine + from_a * sine, magnitude, 6));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Rope,
                         ::testing::Values(RopePairs::interleaved, RopePairs::halves),
                         [](const auto& test) {
                           return test.param == RopePairs::halves ? "halves" : "interleaved";
                         });

}  // namespace
}  // namespace copse::kernels
