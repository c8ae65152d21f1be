#include "kernels/tree_build/tree_build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/random.h"

namespace copse::kernels {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Inputs and room for one tree; what is not written stays poison.
struct Fixture {
  Fixture(int positions_count, int k, int budget, std::vector<float> values)
      : log_probs(std::move(values)) {
    for (int i = 0; i < positions_count * k; ++i) candidates.push_back(i);
    const auto rows = static_cast<std::size_t>(1 + budget);
    tokens.assign(rows, -99);
    parents.assign(rows, -99);
    positions.assign(rows, -99);
    ancestors.assign(rows * static_cast<std::size_t>(tree_mask_words(budget)), ~0ull);
    task = {log_probs, candidates, positions_count, k,         budget,    false,      5,
            100,       tokens,     parents,         positions, ancestors, /*nodes=*/0};
  }
  std::vector<float> log_probs;
  std::vector<TokenId> candidates;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<std::int32_t> positions;
  std::vector<std::uint64_t> ancestors;
  TreeBuildTask task;
};

void build(Fixture& fixture) {
  TreeBuildWorkspace workspace(fixture.task.budget, fixture.task.positions);
  tree_build(std::span(&fixture.task, 1), workspace);
}

// Descending values on a coarse grid, so that many path sums tie.
std::vector<float> coarse_rows(int positions, int k, SeededRandom& random) {
  std::vector<float> values;
  for (int p = 0; p < positions; ++p) {
    std::vector<float> row;
    for (int i = 0; i < k; ++i) row.push_back(-0.25f * static_cast<float>(random.below(12)));
    std::ranges::sort(row, std::greater{});
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

TEST(TreeBuild, AgreesWithSortedTuplesOnTies) {
  SeededRandom random(1);
  for (int round = 0; round < 200; ++round) {
    const int positions = static_cast<int>(random.below(16));
    const int k = 1 + static_cast<int>(random.below(16));
    const int budget = static_cast<int>(random.below(80));
    Fixture fast(positions, k, budget, coarse_rows(positions, k, random));
    Fixture reference(positions, k, budget, fast.log_probs);
    build(fast);
    tree_build_ref(std::span(&reference.task, 1));
    ASSERT_EQ(fast.task.nodes, reference.task.nodes);
    EXPECT_EQ(fast.tokens, reference.tokens);
    EXPECT_EQ(fast.parents, reference.parents);
    EXPECT_EQ(fast.positions, reference.positions);
    EXPECT_EQ(fast.ancestors, reference.ancestors);
  }
}

TEST(TreeBuild, AWorkedExample) {
  // Position 1: -0.1, -1; position 2: -0.2, -3. Paths: (0) -0.1, (0,0) -0.3, (1) -1, (1,0) -1.2.
  Fixture fixture(2, 2, 4, {-0.1f, -1.0f, -0.2f, -3.0f});
  build(fixture);
  EXPECT_EQ(fixture.tokens, (std::vector<TokenId>{5, 0, 2, 1, 2}));
  EXPECT_EQ(fixture.parents, (std::vector<std::int32_t>{-1, 0, 1, 0, 3}));
  EXPECT_EQ(fixture.positions, (std::vector<std::int32_t>{100, 101, 102, 101, 102}));
  EXPECT_EQ(fixture.ancestors,
            (std::vector<std::uint64_t>{0b00001, 0b00011, 0b00111, 0b01001, 0b11001}));
}

TEST(TreeBuild, ChainIsTheTopCandidateOfEachPosition) {
  Fixture fixture(3, 2, 8, {-1, -2, -3, -4, -5, -6});
  fixture.task.chain = true;
  build(fixture);
  EXPECT_EQ(fixture.task.nodes, 3);  // min(budget, positions)
  EXPECT_EQ(std::vector<TokenId>(fixture.tokens.begin(), fixture.tokens.begin() + 4),
            (std::vector<TokenId>{5, 0, 2, 4}));
  EXPECT_EQ(fixture.parents[3], 2);
  EXPECT_EQ(fixture.ancestors[3], 0b1111u);
  EXPECT_EQ(fixture.tokens[4], -99) << "rows past the tree are not written";
}

TEST(TreeBuild, ImpossibleCandidatesAreNotDrafted) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Fixture gone(1, 3, 8, {-1, minus_infinity, minus_infinity});
  build(gone);
  EXPECT_EQ(gone.task.nodes, 1);
  Fixture broken(2, 2, 8, {nan, nan, -1, -2});
  build(broken);
  EXPECT_EQ(broken.task.nodes, 0);
}

TEST(TreeBuild, TokenZeroIsATokenLikeAnyOther) {
  Fixture fixture(1, 2, 2, {-1, -2});
  build(fixture);
  EXPECT_EQ(fixture.task.nodes, 2);
  EXPECT_EQ(fixture.tokens[1], 0);
}

TEST(TreeBuild, MasksSpanSeveralWords) {
  SeededRandom random(3);
  Fixture fixture(15, 32, 200, coarse_rows(15, 32, random));
  build(fixture);
  ASSERT_EQ(fixture.task.nodes, 200);
  const auto words = static_cast<std::size_t>(tree_mask_words(200));
  for (std::size_t row = 0; row <= 200; ++row) {
    std::vector<bool> expected(words * 64);
    for (int at = static_cast<int>(row); at >= 0;
         at = fixture.parents[static_cast<std::size_t>(at)]) {
      expected[static_cast<std::size_t>(at)] = true;
    }
    for (std::size_t bit = 0; bit < words * 64; ++bit) {
      const bool seen = ((fixture.ancestors[row * words + bit / 64] >> (bit % 64)) & 1) != 0;
      ASSERT_EQ(seen, expected[bit]) << row << " " << bit;
    }
  }
}

}  // namespace
}  // namespace copse::kernels
