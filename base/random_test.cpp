#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace copse {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, GivesThePublishedAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32_10({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                          {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(GumbelNoise, IsAPureFunctionOfItsArguments) {
  EXPECT_EQ(gumbel_noise(7, 0, 11, 13), gumbel_noise(7, 0, 11, 13));
  EXPECT_NE(gumbel_noise(7, 0, 11, 13), gumbel_noise(8, 0, 11, 13));
  EXPECT_NE(gumbel_noise(7, 0, 11, 13), gumbel_noise(7, 1, 11, 13));
  EXPECT_NE(gumbel_noise(7, 0, 11, 13), gumbel_noise(7, 0, 12, 13));
  EXPECT_NE(gumbel_noise(7, 0, 11, 13), gumbel_noise(7, 0, 11, 14));
}

TEST(GumbelNoise, IsFiniteAtBothEndsOfTheRandomWord) {
  EXPECT_TRUE(std::isfinite(gumbel_from_word(0)));
  EXPECT_TRUE(std::isfinite(gumbel_from_word(~0u)));
  EXPECT_GT(gumbel_from_word(0), gumbel_from_word(~0u));
}

TEST(GumbelNoise, HasTheMeanOfTheGumbelDistribution) {
  double sum = 0;
  constexpr int kDraws = 200000;
  for (std::uint32_t t = 0; t < kDraws; ++t) sum += static_cast<double>(gumbel_noise(1, 0, 5, t));
  EXPECT_NEAR(sum / kDraws, 0.5772, 0.01);  // Euler's constant; standard error 0.003
}

TEST(SeededRandom, RepeatsForTheSameSeed) {
  SeededRandom a(3), b(3), c(4);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
}

}  // namespace
}  // namespace copse
