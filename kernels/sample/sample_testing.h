#pragma once
// What the sampling tests share: a vocabulary cut into simulated shards, and the whole draw as the
// worker makes it, with the collectives done by hand.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/testing.h"
#include "kernels/sample/sample_filter.h"

namespace copse::kernels::testing {

struct Shards {
  // logits: [rows][vocabulary]; each shard is padded with NaN.
  Shards(const std::vector<float>& logits, int rows, int vocabulary, int world) {
    const int local = (vocabulary + world - 1) / world;
    const int stride = local + 5;
    for (int rank = 0; rank < world; ++rank) {
      const int begin = std::min(rank * local, vocabulary);
      const int count = std::min(local, vocabulary - begin);
      data.emplace_back(static_cast<std::size_t>(rows * stride),
                        std::numeric_limits<float>::quiet_NaN());
      for (int r = 0; r < rows; ++r) {
        std::copy_n(logits.begin() + r * vocabulary + begin, count,
                    data.back().begin() + r * stride);
      }
      views.push_back({{}, rows, stride, begin, count});
    }
    for (std::size_t i = 0; i < views.size(); ++i) views[i].values = data[i];
  }
  std::vector<std::vector<float>> data;
  std::vector<SampleLogits> views;
};

// One filter per simulated rank, in lock step.
struct Filters {
  std::vector<SampleFilter> ranks;
  int reductions = 0;

  void settle(FilterStage stage, ThreadPool& pool) {
    for (int pass = 0; pass < ranks[0].passes() && ranks[0].pending(stage); ++pass) {
      std::vector<std::span<std::uint64_t>> counts;
      for (SampleFilter& filter : ranks) counts.push_back(filter.histogram(stage, pass, pool));
      std::vector<std::uint64_t> sum(counts[0].size());
      for (const auto& count : counts) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += count[i];
      }
      for (const auto& count : counts) std::ranges::copy(sum, count.begin());
      for (SampleFilter& filter : ranks) filter.narrow(stage, pass);
      ++reductions;
    }
  }
};

inline std::vector<TokenId> draw(const std::vector<float>& logits, int vocabulary,
                                 const std::vector<SampleRow>& rows, int world,
                                 bool reference = false) {
  const int count = static_cast<int>(rows.size());
  Shards shards(logits, count, vocabulary, world);
  ThreadPool pool(1);
  Filters filters;
  std::vector<float> maxima;
  if (SampleFilter::needed(rows)) {
    for (const SampleLogits& view : shards.views) {
      filters.ranks.emplace_back(count, view.stride, vocabulary);
      const auto mine = filters.ranks.back().local_maxima(view, rows);
      maxima.insert(maxima.end(), mine.begin(), mine.end());
    }
    for (std::size_t i = 0; i < shards.views.size(); ++i) {
      filters.ranks[i].begin(shards.views[i], rows, maxima, pool);
    }
    filters.settle(FilterStage::top_k, pool);
    filters.settle(FilterStage::top_p, pool);
  }
  std::vector<SampleChoice> choices;
  for (std::size_t i = 0; i < shards.views.size(); ++i) {
    std::span<const SampleThreshold> thresholds;
    if (!filters.ranks.empty()) thresholds = filters.ranks[i].thresholds();
    std::vector<SampleChoice> mine(rows.size());
    if (reference) {
      sample_local_ref(shards.views[i], rows, thresholds, mine);
    } else {
      sample_local(shards.views[i], rows, thresholds, mine, pool);
    }
    choices.insert(choices.end(), mine.begin(), mine.end());
  }
  std::vector<TokenId> tokens(rows.size());
  merge_choices(choices, tokens);
  return tokens;
}

// Logits like a language model's: a few large ones, a long tail.
inline std::vector<float> model_logits(int rows, int vocabulary, std::uint64_t seed,
                                       bool coarse = false) {
  SeededRandom random(seed);
  std::vector<float> logits;
  for (int i = 0; i < rows * vocabulary; ++i) {
    const float uniform = static_cast<float>(random.below(1 << 20) + 1) / 1048577.0f;
    const float value = -3.0f * std::log(uniform) - 4.0f;
    logits.push_back(coarse ? std::floor(2 * value) / 2 : value);
  }
  return logits;
}

}  // namespace copse::kernels::testing
