#include "kernels/topk_logprob/topk_logprob_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/topk_logprob/topk_logprob.h"

namespace copse::kernels::cuda {
namespace {

using testing::download;
using testing::upload;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Best {
  std::vector<float> log_probs;
  std::vector<TokenId> token_ids;
};

struct Shard {
  TopkShape shape;
  std::vector<float> logits;
};

// Rank `rank` of `world`, its rows padded with poison that would win.
Shard cut(const std::vector<float>& logits, int rows, int vocabulary, int k, int world, int rank,
          int padding) {
  const int local = (vocabulary + world - 1) / world;
  TopkShape shape{rows,           k, vocabulary, world, std::min(rank * local, vocabulary), 0,
                  local + padding};
  shape.vocabulary_rows = std::min(local, vocabulary - shape.vocabulary_begin);
  Shard shard{shape, std::vector<float>(static_cast<std::size_t>(rows * shape.stride), 1e30f)};
  for (int r = 0; r < rows; ++r) {
    std::copy_n(
        logits.begin() + static_cast<std::ptrdiff_t>(r) * vocabulary + shape.vocabulary_begin,
        shape.vocabulary_rows,
        shard.logits.begin() + static_cast<std::ptrdiff_t>(r) * shape.stride);
  }
  return shard;
}

Best on_cpu(const std::vector<float>& logits, int rows, int vocabulary, int k) {
  const Shard shard = cut(logits, rows, vocabulary, k, 1, 0, 0);
  std::vector<TopkWord> part(shard.shape.part_words());
  topk_logprob_local_ref(shard.shape, shard.logits, part);
  Best best;
  best.log_probs.resize(static_cast<std::size_t>(rows * k));
  best.token_ids.resize(best.log_probs.size());
  kernels::topk_logprob_merge(shard.shape, part, best.log_probs, best.token_ids);
  return best;
}

class TopkCuda : public testing::CudaTest {
 protected:
  Best on_gpu(const std::vector<float>& logits, int rows, int vocabulary, int k, int world,
              int padding) {
    std::vector<TopkWord> parts;
    for (int rank = 0; rank < world; ++rank) {
      const Shard shard = cut(logits, rows, vocabulary, k, world, rank, padding);
      const auto device = upload(shard.logits);
      const auto part = upload(std::vector<TopkWord>(topk_part_words(shard.shape), {nan, ~0u}));
      EXPECT_TRUE(topk_logprob_local(shard.shape, device.data(), part.data(), stream()).ok());
      synchronize();
      const auto words = download(part);
      parts.insert(parts.end(), words.begin(), words.end());
    }
    const TopkShape shape = cut(logits, rows, vocabulary, k, world, 0, padding).shape;
    const auto all = upload(parts);
    const auto count = static_cast<std::size_t>(rows * k);
    const auto log_probs = upload(std::vector<float>(count, 1e30f));
    const auto token_ids = upload(std::vector<TokenId>(count, -99));
    EXPECT_TRUE(
        topk_logprob_merge(shape, all.data(), log_probs.data(), token_ids.data(), stream()).ok());
    synchronize();
    return {download(log_probs), download(token_ids)};
  }

  void expect_as_on_cpu(const std::vector<float>& logits, int rows, int vocabulary, int k) {
    const Best expected = on_cpu(logits, rows, vocabulary, k);
    Best first;
    for (const int world : {1, 2, 4, 8}) {
      for (const int padding : {0, 3}) {
        SCOPED_TRACE("vocabulary " + std::to_string(vocabulary) + " k " + std::to_string(k) +
                     " world " + std::to_string(world) + " padding " + std::to_string(padding));
        const Best actual = on_gpu(logits, rows, vocabulary, k, world, padding);
        for (std::size_t i = 0; i < expected.token_ids.size(); ++i) {
          ASSERT_EQ(actual.token_ids[i], expected.token_ids[i]) << "place " << i;
          if (expected.log_probs[i] == -infinity) {
            ASSERT_EQ(actual.log_probs[i], -infinity) << "place " << i;
          } else {
            ASSERT_NEAR(actual.log_probs[i], expected.log_probs[i], 2e-5) << "place " << i;
          }
        }
        if (world == 1 && padding == 0) first = actual;
        if (vocabulary % 8 == 0) {
          ASSERT_EQ(actual.log_probs, first.log_probs) << "bits differ by world size";
        }
      }
    }
  }
};

enum class Kind { random, coarse, equal, ascending, descending, spikes };

std::vector<float> logits_of(Kind kind, int rows, int vocabulary) {
  SeededRandom random(static_cast<std::uint64_t>(vocabulary) * 7 +
                      static_cast<std::uint64_t>(kind));
  std::vector<float> logits;
  for (int i = 0; i < rows * vocabulary; ++i) {
    const float uniform = static_cast<float>(random.below(1 << 20)) / 65536.0f - 8;
    const auto at = static_cast<float>(i % vocabulary);
    switch (kind) {
      case Kind::random:
        logits.push_back(uniform);
        break;
      case Kind::coarse:
        logits.push_back(std::floor(uniform));
        break;
      case Kind::equal:
        logits.push_back(2.5f);
        break;
      case Kind::ascending:
        logits.push_back(at * 1e-3f);
        break;
      case Kind::descending:
        logits.push_back(at * -1e-3f);
        break;
      case Kind::spikes:
        logits.push_back(random.below(500) == 0 ? 20 + uniform : -30);
        break;
    }
  }
  return logits;
}

TEST_F(TopkCuda, EveryKindOfLogitsAsOnTheCpuAtEveryWorldSize) {
  for (const Kind kind :
       {Kind::random, Kind::coarse, Kind::equal, Kind::ascending, Kind::descending, Kind::spikes}) {
    for (const int vocabulary : {64, 1024, 4096, 24000}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)));
      const std::vector<float> logits = logits_of(kind, 3, vocabulary);
      for (const int k : {1, 8, 64}) expect_as_on_cpu(logits, 3, vocabulary, k);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(TopkCuda, RaggedVocabulariesAreExactAtEveryWorldSize) {
  for (const int vocabulary : {3, 70, 129, 1001, 20001, 25003}) {
    expect_as_on_cpu(logits_of(Kind::coarse, 2, vocabulary), 2, vocabulary, 64);
    expect_as_on_cpu(logits_of(Kind::random, 2, vocabulary), 2, vocabulary, 17);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TopkCuda, ALargeVocabularyTakesSeveralChunks) {
  for (const Kind kind : {Kind::random, Kind::equal, Kind::ascending, Kind::descending}) {
    const Best expected = on_cpu(logits_of(kind, 2, 400000), 2, 400000, 64);
    const Best actual = on_gpu(logits_of(kind, 2, 400000), 2, 400000, 64, 1, 0);
    EXPECT_EQ(actual.token_ids, expected.token_ids) << static_cast<int>(kind);
    for (std::size_t i = 0; i < expected.log_probs.size(); ++i) {
      ASSERT_NEAR(actual.log_probs[i], expected.log_probs[i], 5e-5) << i;
    }
  }
}

TEST_F(TopkCuda, InfinitiesAreNoCandidatesAndNansSpoilTheirRowAlone) {
  std::vector<float> logits = logits_of(Kind::random, 4, 4096);
  for (std::size_t i = 0; i < 4096; ++i) {
    if (i % 512 != 7) logits[i] = -infinity;      // row 0: eight candidates
    if (i >= 1024) logits[4096 + i] = -infinity;  // row 1: whole slices without any
  }
  expect_as_on_cpu(std::vector<float>(logits.begin(), logits.begin() + 2 * 4096), 2, 4096, 64);
  logits[2 * 4096 + 3000] = nan;
  for (const int world : {1, 2, 8}) {
    const Best best = on_gpu(logits, 4, 4096, 4, world, 0);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_FALSE(std::isnan(best.log_probs[i]));
      EXPECT_TRUE(std::isnan(best.log_probs[8 + i]));
      EXPECT_FALSE(std::isnan(best.log_probs[12 + i]));
    }
  }
}

TEST_F(TopkCuda, EveryRunGivesTheSameBits) {
  const std::vector<float> logits = logits_of(Kind::random, 16, 40960);
  const Best first = on_gpu(logits, 16, 40960, 64, 1, 0);
  for (int run = 0; run < 5; ++run) {
    const Best again = on_gpu(logits, 16, 40960, 64, 1, 0);
    EXPECT_EQ(again.log_probs, first.log_probs);
    EXPECT_EQ(again.token_ids, first.token_ids);
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
