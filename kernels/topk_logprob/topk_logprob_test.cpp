#include "kernels/topk_logprob/topk_logprob.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/testing.h"

namespace copse::kernels {
namespace {

struct TopkOutput {
  std::vector<float> log_probs;
  std::vector<TokenId> token_ids;
  bool operator==(const TopkOutput&) const = default;
};

// logits: [rows][vocabulary] of the whole vocabulary; shards are cut out of it, padded with NaN.
TopkOutput run(const std::vector<float>& logits, int rows, int vocabulary, int k, int world,
               const testing::Backend& backend) {
  testing::UseBackend use(backend);
  const int local = (vocabulary + world - 1) / world;
  std::vector<TopkWord> parts;
  TopkShape shape{rows, k, vocabulary, world, 0, 0, local + 3};
  for (int rank = 0; rank < world; ++rank) {
    shape.vocabulary_begin = std::min(rank * local, vocabulary);
    shape.vocabulary_rows = std::min(local, vocabulary - shape.vocabulary_begin);
    std::vector<float> shard(static_cast<std::size_t>(rows * shape.stride),
                             std::numeric_limits<float>::quiet_NaN());
    for (int r = 0; r < rows; ++r) {
      std::copy_n(logits.begin() + r * vocabulary + shape.vocabulary_begin, shape.vocabulary_rows,
                  shard.begin() + r * shape.stride);
    }
    std::vector<TopkWord> part(shape.part_words());
    if (backend.reference) {
      topk_logprob_local_ref(shape, shard, part);
    } else {
      topk_logprob_local(shape, shard, part, use.pool);
    }
    parts.insert(parts.end(), part.begin(), part.end());
  }
  TopkOutput out;
  out.log_probs.resize(static_cast<std::size_t>(rows * k));
  out.token_ids.resize(out.log_probs.size());
  topk_logprob_merge(shape, parts, out.log_probs, out.token_ids);
  return out;
}

std::vector<float> random_logits(int rows, int vocabulary, bool coarse) {
  SeededRandom random(static_cast<std::uint64_t>(vocabulary));
  std::vector<float> logits;
  for (int i = 0; i < rows * vocabulary; ++i) {
    const float value = static_cast<float>(random.below(1 << 20)) / 65536.0f;
    logits.push_back(coarse ? std::floor(value) : value);
  }
  return logits;
}

void expect_exact(const TopkOutput& out, const std::vector<float>& logits, int rows, int vocabulary,
                  int k) {
  for (int r = 0; r < rows; ++r) {
    const float* row = logits.data() + r * vocabulary;
    std::vector<TokenId> order(static_cast<std::size_t>(vocabulary));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return row[a] > row[b]; });
    double sum = 0;
    for (int i = 0; i < vocabulary; ++i)
      sum += std::exp(static_cast<double>(row[i]) - row[order[0]]);
    for (int i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(r * k + i);
      const TokenId token = order[static_cast<std::size_t>(i)];
      ASSERT_EQ(out.token_ids[at], token) << "row " << r << " place " << i;
      ASSERT_NEAR(out.log_probs[at], row[token] - row[order[0]] - std::log(sum), 1e-5);
    }
  }
}

TEST(TopkLogprob, AllBackendsAndWorldSizesGiveTheSameBits) {
  for (const bool coarse : {false, true}) {
    const std::vector<float> logits = random_logits(3, 1024, coarse);
    const TopkOutput expected = run(logits, 3, 1024, 32, 1, testing::backends()[0]);
    expect_exact(expected, logits, 3, 1024, 32);
    for (const testing::Backend& backend : testing::backends()) {
      for (const int world : {1, 2, 4, 8}) {
        EXPECT_EQ(run(logits, 3, 1024, 32, world, backend), expected) << backend.name << world;
      }
    }
  }
}

TEST(TopkLogprob, RaggedVocabulariesAreExactAtEveryWorldSize) {
  for (const int vocabulary : {70, 129, 1001}) {
    const std::vector<float> logits = random_logits(2, vocabulary, true);
    for (const testing::Backend& backend : testing::backends()) {
      for (const int world : {1, 2, 4, 8}) {
        expect_exact(run(logits, 2, vocabulary, 64, world, backend), logits, 2, vocabulary, 64);
      }
    }
  }
}

TEST(TopkLogprob, AShortShardLeavesPlacesEmpty) {
  const std::vector<float> logits = {1, 2, 3};
  for (const testing::Backend& backend : testing::backends()) {
    const TopkOutput out = run(logits, 1, 3, 5, 2, backend);
    EXPECT_EQ(out.token_ids[0], 2);
    EXPECT_EQ(out.token_ids[2], 0);
    EXPECT_EQ(out.log_probs[3], -std::numeric_limits<float>::infinity());
  }
}

TEST(TopkLogprob, ANanMakesEveryLogProbabilityOfItsRowNan) {
  std::vector<float> logits = random_logits(2, 256, false);
  logits[100] = std::numeric_limits<float>::quiet_NaN();
  for (const testing::Backend& backend : testing::backends()) {
    const TopkOutput out = run(logits, 2, 256, 4, 2, backend);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out.log_probs[i])) << backend.name;
    for (std::size_t i = 4; i < 8; ++i) EXPECT_FALSE(std::isnan(out.log_probs[i]));
  }
}

}  // namespace
}  // namespace copse::kernels
