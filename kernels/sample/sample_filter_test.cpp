#include "kernels/sample/sample_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_testing.h"

namespace copse::kernels {
namespace {

using testing::draw;
using testing::model_logits;

SampleRow filtered(float temperature, int top_k, float top_p, float min_p, std::uint64_t position) {
  SampleRow row;
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  row.min_p = min_p;
  row.seed = 7;
  row.position = position;
  return row;
}

// Which tokens are left, by sorting the whole row: the definition.
std::vector<TokenId> kept_by_sorting(const float* logits, int vocabulary, const SampleRow& row) {
  std::vector<float> scaled;
  for (int i = 0; i < vocabulary; ++i) scaled.push_back(logits[i] / row.temperature);
  std::vector<TokenId> order(scaled.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](TokenId token) { return scaled[static_cast<std::size_t>(token)]; };
  std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return value(a) > value(b); });
  const float largest = value(order[0]);
  const auto mass = [&](TokenId token) { return sample_mass(value(token), largest); };
  if (row.top_k > 0 && row.top_k < vocabulary) order.resize(static_cast<std::size_t>(row.top_k));
  if (row.top_p < 1) {
    long double total = 0;
    for (const TokenId token : order) total += static_cast<long double>(mass(token));
    const auto fraction = std::floor(static_cast<double>(row.top_p) * 0x1p32) * 0x1p-32;
    long double sum = 0;
    std::size_t count = 0;
    while (count < order.size() && (count == 0 || sum < total * fraction)) {
      sum += static_cast<long double>(mass(order[count++]));
    }
    order.resize(count);
  }
  std::erase_if(order, [&](TokenId token) {
    return static_cast<double>(mass(token)) < static_cast<double>(row.min_p) * 0x1p43;
  });
  return order;
}

TokenId draw_by_sorting(const float* logits, int vocabulary, const SampleRow& row) {
  SampleChoice best;
  for (const TokenId token : kept_by_sorting(logits, vocabulary, row)) {
    const SampleChoice choice{
        logits[token] / row.temperature +
            gumbel_noise(row.seed, row.choice, row.position, static_cast<std::uint32_t>(token)),
        token};
    if (best.token == sample_none || better_choice(choice, best)) best = choice;
  }
  return best.token;
}

TEST(SampleFilter, ThresholdsKeepExactlyWhatSortingKeeps) {
  const int vocabulary = 517;
  for (const bool coarse : {false, true}) {
    const std::vector<float> logits = model_logits(1, vocabulary, 5, coarse);
    for (const int top_k : {0, 1, 2, 40, 516, 517, 9999}) {
      for (const float top_p : {1.0f, 0.9999f, 0.9f, 0.3f, 1e-4f}) {
        for (const float min_p : {0.0f, 0.001f, 0.2f, 0.999f}) {
          const SampleRow row = filtered(0.9f, top_k, top_p, min_p, 1);
          if (!row.filtered()) continue;
          for (const int world : {1, 2, 4, 8}) {
            ThreadPool pool(1);
            testing::Shards shards(logits, 1, vocabulary, world);
            testing::Filters filters;
            std::vector<float> maxima;
            for (const SampleLogits& view : shards.views) {
              filters.ranks.emplace_back(1, view.stride, vocabulary);
              maxima.push_back(filters.ranks.back().local_maxima(view, std::span(&row, 1))[0]);
            }
            for (std::size_t i = 0; i < shards.views.size(); ++i) {
              filters.ranks[i].begin(shards.views[i], std::span(&row, 1), maxima, pool);
            }
            filters.settle(FilterStage::top_k, pool);
            filters.settle(FilterStage::top_p, pool);
            const SampleThreshold threshold = filters.ranks[0].thresholds()[0];
            std::vector<TokenId> kept;
            for (TokenId t = 0; t < vocabulary; ++t) {
              const float scaled = logits[static_cast<std::size_t>(t)] / row.temperature;
              if (passes(threshold, scaled, t)) kept.push_back(t);
            }
            std::vector<TokenId> expected = kept_by_sorting(logits.data(), vocabulary, row);
            std::ranges::sort(expected);
            ASSERT_EQ(kept, expected) << "top_k " << top_k << " top_p " << top_p << " min_p "
                                      << min_p << " world " << world << " coarse " << coarse;
            EXPECT_LE(filters.reductions, 2 * filters.ranks[0].passes());
          }
        }
      }
    }
  }
}

TEST(SampleFilter, DrawsEqualTheDefinitionInMixedBatches) {
  const int vocabulary = 700;
  std::vector<SampleRow> rows;
  for (std::uint64_t p = 0; p < 12; ++p) {
    rows.push_back(filtered(0.7f, 20, 0.9f, 0, p));
    rows.push_back(filtered(1.3f, 0, 0.95f, 0.05f, p));
    rows.push_back(filtered(1.0f, 0, 1, 0, p));
    rows.push_back(filtered(0, 3, 0.5f, 0.5f, p));
  }
  const std::vector<float> logits = model_logits(static_cast<int>(rows.size()), vocabulary, 21);
  const std::vector<TokenId> alone = draw(logits, vocabulary, rows, 1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* row = logits.data() + r * static_cast<std::size_t>(vocabulary);
    const TokenId expected =
        rows[r].greedy() ? static_cast<TokenId>(std::max_element(row, row + vocabulary) - row)
                         : draw_by_sorting(row, vocabulary, rows[r]);
    EXPECT_EQ(alone[r], expected) << "row " << r;
  }
  for (const int world : {2, 4, 8}) EXPECT_EQ(draw(logits, vocabulary, rows, world), alone);
}

TEST(SampleFilter, TopKOfOneAndATinyTopPAreGreedy) {
  const int vocabulary = 4096;
  const std::vector<float> logits = model_logits(50, vocabulary, 8);
  const std::vector<TokenId> greedy = draw(logits, vocabulary, std::vector<SampleRow>(50), 1);
  std::vector<SampleRow> one;
  std::vector<SampleRow> tiny;
  for (std::uint64_t p = 0; p < 50; ++p) {
    one.push_back(filtered(1, 1, 1, 0, p));
    tiny.push_back(filtered(1, 0, 1e-4f, 0, p));
  }
  for (const int world : {1, 8}) {
    EXPECT_EQ(draw(logits, vocabulary, one, world), greedy);
    EXPECT_EQ(draw(logits, vocabulary, tiny, world), greedy);
  }
}

TEST(SampleFilter, TopKOfOneTakesTheLowerOfEqualLogits) {
  std::vector<float> logits(600, 0.0f);
  logits[300] = logits[500] = 3;
  for (const int world : {1, 2, 8}) {
    EXPECT_EQ(draw(logits, 600, {filtered(1, 1, 1, 0, 2)}, world)[0], 300);
  }
}

}  // namespace
}  // namespace copse::kernels
