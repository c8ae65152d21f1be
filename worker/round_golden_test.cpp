// The embedded pair against what the published reference code computed with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "worker/golden_for_test.h"

namespace copse {
namespace {

using testing::Generated;
using testing::golden;
using testing::local_engine;
using testing::request_of;

double mean(const std::vector<int>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(RoundGolden, GreedyTokensEqualTheReferenceInEveryMode) {
  ASSERT_EQ(golden().size(), 9u);
  for (const Json& prompt : golden()) {
    const auto expected = prompt["output_ids"].get<std::vector<TokenId>>();
    for (const auto& [mode, budget] : {std::pair{DraftMode::none, 0},
                                       {DraftMode::chain, 15},
                                       {DraftMode::tree, 16},
                                       {DraftMode::tree, 64}}) {
      const Generated out = local_engine().generate(request_of(prompt, mode, budget));
      EXPECT_EQ(out.tokens, expected) << static_cast<int>(mode) << " " << budget;
      EXPECT_EQ(out.finish, FinishReason::length);
    }
  }
}

// Rounds of this engine end with the 96th token; the reference may run one round more.
void expect_walks(const char* name, DraftMode mode, int budget) {
  std::vector<int> ours;
  std::vector<int> theirs;
  for (const Json& prompt : golden()) {
    const Generated out = local_engine().generate(request_of(prompt, mode, budget));
    auto expected = prompt[name]["acceptance_lengths"].get<std::vector<int>>();
    EXPECT_LE(out.walks.size(), expected.size() + 1) << name;
    if (expected.size() > out.walks.size()) expected.resize(out.walks.size());
    std::size_t equal = 0;
    while (equal < expected.size() && expected[equal] == out.walks[equal]) ++equal;
    EXPECT_EQ(equal, expected.size()) << name << ": first difference at round " << equal;
    ours.insert(ours.end(), out.walks.begin(), out.walks.end());
    theirs.insert(theirs.end(), expected.begin(), expected.end());
  }
  EXPECT_NEAR(mean(ours) / mean(theirs), 1.0, 0.02) << name;
  ::testing::Test::RecordProperty(std::string(name) + "_mean", std::to_string(mean(ours)));
}

TEST(RoundGolden, ChainWalksEqualTheReference) {
  expect_walks("chain", DraftMode::chain, 15);
}
TEST(RoundGolden, Tree16WalksEqualTheReference) {
  expect_walks("tree_16", DraftMode::tree, 16);
}
TEST(RoundGolden, Tree32WalksEqualTheReference) {
  expect_walks("tree_32", DraftMode::tree, 32);
}
TEST(RoundGolden, Tree64WalksEqualTheReference) {
  expect_walks("tree_64", DraftMode::tree, 64);
}

// The reference's order comes from its own float32 log-probabilities: where two path sums are
// nearly equal another order is right too. No such pair is among these trees.
TEST(RoundGolden, TheFirstTreesEqualTheReference) {
  for (const Json& prompt : golden()) {
    std::vector<testing::TestEngine::Running> one = {
        local_engine().begin(request_of(prompt, DraftMode::tree, 32), 0)};
    for (const Json& round : prompt["tree_32"]["rounds"]) {
      local_engine().step(one);
      const Round::TreeView tree = local_engine().round().tree(0);
      // Its lists begin at the first node; its parents at the root.
      const auto tokens = round["token_ids"].get<std::vector<TokenId>>();
      const auto depths = round["depths"].get<std::vector<std::int32_t>>();
      ASSERT_EQ(tree.tokens.size(), tokens.size() + 1);
      EXPECT_TRUE(std::ranges::equal(tree.tokens.subspan(1), tokens));
      EXPECT_TRUE(
          std::ranges::equal(tree.parents, round["parents"].get<std::vector<std::int32_t>>()));
      for (std::size_t i = 0; i < depths.size(); ++i) {
        EXPECT_EQ(tree.positions[i + 1] - tree.positions[0], depths[i]);
      }
      EXPECT_EQ(one[0].out.walks.back(), static_cast<int>(round["accepted"].size()));
    }
    local_engine().end(one[0]);
  }
}

}  // namespace
}  // namespace copse
