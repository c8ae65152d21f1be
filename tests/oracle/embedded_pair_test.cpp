// The embedded pair against what the published reference code computed with it (models/golden), and
// against itself: the number of ranks must not change a bit (docs/decisions/0002).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/common/thread_pool.h"
#include "model/dflash/drafter_model.h"
#include "model/score/sequence_runner.h"
#include "tests/oracle/oracle.h"

namespace copse::oracle {
namespace {

constexpr auto kTarget = "models/sapling";
constexpr auto kDrafter = "models/sapling-dflash";

// Target and drafter on one rank, and one sequence's state.
struct Pair {
  static Result<std::unique_ptr<Pair>> load(Collective& group, ThreadPool& threads) {
    COPSE_TRY(const ModelConfig config, read_model_config(kTarget));
    COPSE_TRY(const DrafterConfig draft_config, read_drafter_config(kDrafter));
    TargetOptions options;
    options.rows_max = limits::prefill_chunk_rows;
    options.logit_rows_max = 1;
    options.feature_layers = draft_config.target_layer_ids;
    auto pair = std::make_unique<Pair>();
    COPSE_TRY(pair->target, TargetModel::load(kTarget, config, options, group, threads));
    COPSE_TRY(pair->drafter,
              DrafterModel::load(kDrafter, draft_config, {1, limits::prefill_chunk_rows},
                                 pair->target->tables(), group, threads));
    return pair;
  }

  // Prefills `prompt` in both models; the first block's logits, this rank's part.
  Result<DraftOutput> first_block(std::span<const TokenId> prompt, TokenId bonus) {
    const int length = static_cast<int>(prompt.size());
    const int pages = length / limits::page_tokens + 1;
    page_table.resize(static_cast<std::size_t>(pages));
    std::iota(page_table.begin(), page_table.end(), 0);
    runner.emplace(*target, length);
    cache.emplace(drafter->cache_shape(pages));
    for (int at = 0; at < length;) {
      const int rows = std::min(length - at, runner->chunk_rows());
      COPSE_TRY(const ForwardOutput output,
                runner->append(
                    prompt.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows)),
                    SequenceRunner::Logits::last));
      COPSE_RETURN_IF_ERROR(append_context(output.features, at, rows));
      at += rows;
    }
    const DraftSequence sequence = {bonus, length, page_table};
    return drafter->forward({std::span(&sequence, 1)}, *cache);
  }

  Status append_context(std::span<const float> features, int at, int rows) {
    std::vector<std::int32_t> feature_rows(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> positions(feature_rows.size());
    std::iota(feature_rows.begin(), feature_rows.end(), 0);
    std::iota(positions.begin(), positions.end(), at);
    std::vector<ContextBatch::Destination> destinations;
    for (const int p : positions) {
      destinations.push_back({p / limits::page_tokens, p % limits::page_tokens});
    }
    return drafter->append_context({features, feature_rows, positions, destinations}, *cache);
  }

  std::unique_ptr<TargetModel> target;
  std::unique_ptr<DrafterModel> drafter;
  std::optional<SequenceRunner> runner;
  std::optional<DraftCache> cache;
  std::vector<PageId> page_table;
};

std::vector<float> log_softmax(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - highest));
  const float norm = highest + static_cast<float>(std::log(sum));
  std::vector<float> result(logits.begin(), logits.end());
  for (float& value : result) value -= norm;
  return result;
}

// The reference's top tokens have the reference's log-probabilities, and no other token is above
// the last of them by more than the tolerance.
bool position_matches(const std::string& what, std::span<const float> logits, const Json& ids,
                      const Json& expected) {
  constexpr float kTolerance = 1e-3f;
  const std::vector<float> log_probs = log_softmax(logits);
  const std::vector<TokenId> top = token_ids(ids);
  std::vector<float> of_top;
  for (const TokenId id : top) of_top.push_back(log_probs[static_cast<std::size_t>(id)]);
  std::vector<float> sorted = log_probs;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.resize(top.size());
  const auto reference = expected.get<std::vector<float>>();
  return close(what + " log-probabilities", of_top, reference, kTolerance) &&
         close(what + " ranks", sorted, reference, kTolerance);
}

bool draft_blocks_match(Collective& group) {
  ThreadPool threads(1);
  const auto pair = Pair::load(group, threads);
  if (!pair.ok()) return complain(describe(pair.error()));
  const Json golden = golden_json("models/golden/draft_block.json");
  const std::size_t world = static_cast<std::size_t>(group.world_size());
  bool good = !golden.empty();
  for (const Json& block : golden) {
    const auto output =
        (*pair)->first_block(token_ids(block.at("prompt_ids")), block.at("bonus").get<TokenId>());
    if (!output.ok()) return complain(describe(output.error()));
    const std::size_t positions = block.at("top_token_ids").size();
    const std::size_t local = output->logits.size() / positions;
    std::vector<float> all(output->logits.size() * world);
    if (!group.all_gather(std::as_bytes(output->logits), std::as_writable_bytes(std::span(all)))
             .ok()) {
      return complain("all_gather failed");
    }
    for (std::size_t p = 0; p < positions; ++p) {
      std::vector<float> row;
      for (std::size_t rank = 0; rank < world; ++rank) {
        const auto part = all.begin() + static_cast<std::ptrdiff_t>((rank * positions + p) * local);
        row.insert(row.end(), part, part + static_cast<std::ptrdiff_t>(local));
      }
      good = position_matches("draft position " + std::to_string(p + 1), row,
                              block.at("top_token_ids")[p], block.at("top_log_probs")[p]) &&
             good;
    }
  }
  return good;
}

bool generation_matches(Collective& group, std::size_t prompts) {
  ThreadPool threads(1);
  const auto scorer = Scorer::load(kTarget, group, threads);
  if (!scorer.ok()) return complain(describe(scorer.error()));
  const Json golden = golden_json("models/golden/generation.json");
  bool good = golden.size() >= prompts;
  for (std::size_t i = 0; i < prompts && good; ++i) {
    const std::vector<TokenId> expected = token_ids(golden[i].at("output_ids"));
    const auto tokens =
        greedy(**scorer, token_ids(golden[i].at("prompt_ids")), static_cast<int>(expected.size()));
    if (!tokens.ok()) return complain(describe(tokens.error()));
    good = equal("prompt " + std::to_string(i), *tokens, expected);
  }
  return good;
}

class EmbeddedPair : public testing::TestWithParam<int> {};

TEST_P(EmbeddedPair, DraftsTheReferencesBlocks) {
  EXPECT_TRUE(run_ranks(GetParam(), draft_blocks_match));
}

TEST_P(EmbeddedPair, GeneratesTheReferencesTokens) {
  const std::size_t prompts = GetParam() == 1 ? 9 : 2;
  EXPECT_TRUE(
      run_ranks(GetParam(), [&](Collective& group) { return generation_matches(group, prompts); }));
}

INSTANTIATE_TEST_SUITE_P(Tp, EmbeddedPair, testing::Values(1, 2, 4, 8),
                         testing::PrintToStringParamName());

// Logits of a text and of a tree, as rank 0 of `world_size` ranks has them.
bool score_at(int world_size, const ScoreInput& input, std::span<float> into) {
  return run_ranks(world_size, [&](Collective& group) {
    ThreadPool threads(group.rank() % 2 + 1);  // nor may the number of threads
    const auto scorer = Scorer::load(kTarget, group, threads);
    if (!scorer.ok()) return complain(describe(scorer.error()));
    const auto output = (*scorer)->score(input);
    if (!output.ok()) return complain(describe(output.error()));
    if (output->logits.size() + output->tree_logits.size() != into.size()) return false;
    if (group.rank() != 0) return true;
    std::copy(output->tree_logits.begin(), output->tree_logits.end(),
              std::copy(output->logits.begin(), output->logits.end(), into.begin()));
    return true;
  });
}

TEST(OneOrderOfSummation, RanksAndBatchShapesChangeNoBit) {
  const Json golden = golden_json("models/golden/generation.json");
  ScoreInput input;
  input.input_ids = token_ids(golden[0].at("prompt_ids"));
  ASSERT_GT(input.input_ids.size(), 128u);  // crosses pages
  // The tree repeats the text from its 100th token on as a chain of 40 nodes.
  input.prefix_length = 100;
  for (int i = 0; i < 40; ++i) {
    input.tree_token_ids.push_back(input.input_ids[static_cast<std::size_t>(100 + i)]);
    input.tree_parents.push_back(i - 1);
  }
  const std::size_t vocabulary = 4096;
  const std::size_t text = input.input_ids.size() * vocabulary;
  SharedFloats one(text + 40 * vocabulary);
  ASSERT_TRUE(score_at(1, input, one.values()));
  EXPECT_EQ(std::memcmp(one.values().data() + 100 * vocabulary, one.values().data() + text,
                        40 * vocabulary * sizeof(float)),
            0)
      << "a draft node is not its committed row";
  for (const int world_size : {2, 4, 8}) {
    SharedFloats many(one.values().size());
    ASSERT_TRUE(score_at(world_size, input, many.values()));
    EXPECT_EQ(std::memcmp(one.values().data(), many.values().data(), one.values().size_bytes()), 0)
        << "tp " << world_size;
  }
}

}  // namespace
}  // namespace copse::oracle
