#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "kernels/sample/sample_testing.h"

namespace copse::kernels {
namespace {

using testing::draw;
using testing::model_logits;

SampleRow noisy(float temperature, std::uint64_t position, std::uint64_t seed = 7) {
  SampleRow row;
  row.temperature = temperature;
  row.position = position;
  row.seed = seed;
  return row;
}

TEST(Sample, GreedyTakesTheLowerIdOfEqualLogits) {
  std::vector<float> logits(300, 1.0f);
  logits[150] = logits[170] = logits[299] = 5.0f;
  for (const int world : {1, 2, 4, 8}) {
    EXPECT_EQ(draw(logits, 300, {SampleRow()}, world), (std::vector<TokenId>{150}));
  }
}

TEST(Sample, EveryBackendDrawsAsThePlainLoopsAtEveryWorldSize) {
  for (const float temperature : {1e-4f, 0.1f, 0.8f, 1.0f, 2.0f, 50.0f}) {
    std::vector<SampleRow> rows;
    for (std::uint64_t p = 0; p < 24; ++p) rows.push_back(noisy(temperature, p * p, p));
    const std::vector<float> logits = model_logits(24, 1003, 11);
    const std::vector<TokenId> expected = draw(logits, 1003, rows, 1, true);
    for (const testing::Backend& backend : testing::backends()) {
      testing::UseBackend use(backend);
      for (const int world : {1, 2, 4, 8}) {
        EXPECT_EQ(draw(logits, 1003, rows, world, backend.reference), expected)
            << backend.name << " temperature " << temperature << " world " << world;
      }
    }
  }
}

TEST(Sample, NoiseOfTheEndsOfItsRangeIsFinite) {
  for (const std::uint32_t word : {0u, 1u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFEu, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isfinite(gumbel_from_word(word))) << word;
  }
  // The bound that draws skip tokens by.
  EXPECT_LT(gumbel_from_word(0), 22.9f);
  EXPECT_GT(gumbel_from_word(0), 22.8f);
  EXPECT_LT(gumbel_from_word(0xFFFFFFFFu), -3.1f);
}

TEST(Sample, SeedChoiceAndPositionEachChangeTheDraw) {
  const std::vector<float> logits(4096, 0.0f);
  SampleRow other_choice = noisy(1, 5);
  other_choice.choice = 1;
  std::vector<TokenId> tokens;
  for (const SampleRow& row :
       {noisy(1, 5), noisy(1, 6), noisy(1, 5, 8), noisy(1, 5 + (1ull << 32)), other_choice}) {
    tokens.push_back(draw(logits, 4096, {row}, 1)[0]);
  }
  EXPECT_EQ(draw(logits, 4096, {noisy(1, 5)}, 1)[0], tokens[0]);
  std::ranges::sort(tokens);
  EXPECT_EQ(std::ranges::unique(tokens).size(), 0u);
}

TEST(Sample, ARowThatIsNotFiniteIsNamedAndOthersAreNot) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    for (const int at : {0, 17, 99}) {
      std::vector<float> logits = model_logits(3, 100, 2);
      logits[static_cast<std::size_t>(100 + at)] = bad;
      SampleRow filtered = noisy(1, 3);
      filtered.top_p = 0.5f;
      for (const SampleRow& row : {SampleRow(), noisy(1, 3), filtered}) {
        for (const int world : {1, 4}) {
          const std::vector<TokenId> tokens = draw(logits, 100, {row, row, row}, world);
          EXPECT_EQ(tokens[1], sample_not_finite);
          EXPECT_GE(tokens[0], 0);
          EXPECT_GE(tokens[2], 0);
        }
      }
    }
  }
}

TEST(Sample, MaskedTokensAreNeverDrawn) {
  std::vector<float> logits(64, 0.0f);
  logits[9] = 50;
  logits[40] = 40;
  const std::vector<TokenId> masked = {9};
  for (SampleRow row : {SampleRow(), noisy(0.8f, 1)}) {
    for (const int world : {1, 2, 8}) {
      row.masked = {};
      EXPECT_EQ(draw(logits, 64, {row}, world)[0], 9);
      row.masked = masked;
      EXPECT_EQ(draw(logits, 64, {row}, world)[0], 40);
      row.top_k = 1;
      EXPECT_EQ(draw(logits, 64, {row}, world)[0], 40);
      row.top_k = 0;
    }
  }
}

TEST(Sample, AShardWithoutTokensOffersNone) {
  // Three tokens over eight ranks: five have none.
  EXPECT_EQ(draw({1, 9, 2}, 3, {SampleRow()}, 8)[0], 1);
  EXPECT_GE(draw({1, 1, 1}, 3, {noisy(1, 4)}, 8)[0], 0);
}

// Chi-square of the draws against softmax(logits / T): 15 degrees of freedom, the 0.999 quantile is
// 37.7. The seeds are fixed, so the test does not flicker.
TEST(Sample, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0,    0.5f, 1,     1.5f, 2,    -0.5f, -1,   0.25f,
                                     0.7f, 1.2f, -0.2f, 0.9f, 1.9f, 0.1f,  0.3f, 1.1f};
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    double total = 0;
    for (const float value : logits) total += std::exp(value / temperature);
    std::vector<int> counts(16);
    constexpr int draws = 100000;
    ThreadPool pool(1);
    const SampleLogits view = {logits, 1, 16, 0, 16};
    for (int i = 0; i < draws; ++i) {
      const SampleRow row = noisy(temperature, static_cast<std::uint64_t>(i), 99);
      SampleChoice choice;
      sample_local(view, std::span(&row, 1), {}, std::span(&choice, 1), pool);
      ++counts[static_cast<std::size_t>(choice.token)];
    }
    double chi_square = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      const double expected = draws * std::exp(logits[i] / temperature) / total;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 37.7) << "temperature " << temperature;
  }
}

}  // namespace
}  // namespace copse::kernels
