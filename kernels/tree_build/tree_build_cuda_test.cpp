#include "kernels/tree_build/tree_build_cuda.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/limits.h"
#include "base/random.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/tree_build/tree_build.h"

namespace copse::kernels::cuda {
namespace {

using testing::download;
using testing::upload;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

enum class Kind { random, coarse, flat, peaked, with_gaps, tied_pairs };

std::vector<float> candidates_of(Kind kind, int rows, int k, SeededRandom& random) {
  std::vector<float> values;
  for (int p = 0; p < rows; ++p) {
    std::vector<float> row;
    for (int i = 0; i < k; ++i) {
      const float uniform = static_cast<float>(random.below(1 << 20) + 1) / 1048577.0f;
      switch (kind) {
        case Kind::random:
          row.push_back(3 * std::log(uniform));
          break;
        case Kind::coarse:
          row.push_back(-0.25f * static_cast<float>(random.below(12)));
          break;
        case Kind::flat:
          row.push_back(-4.158883f);
          break;
        case Kind::peaked:
          row.push_back(i == 0 ? -1e-7f : -9 + std::log(uniform));
          break;
        case Kind::with_gaps:
          row.push_back(random.below(3) == 0 ? minus_infinity : std::log(uniform));
          break;
        // Two equal neighbours and an odd sum: a sibling's weight can come out above its elder's.
        case Kind::tied_pairs:
          row.push_back(-0.1f * static_cast<float>(i / 2) - uniform * 1e-9f);
      }
    }
    std::ranges::sort(row, std::greater{});
    if (kind == Kind::tied_pairs) {
      for (std::size_t i = 1; i < row.size(); i += 2) row[i] = row[i - 1];
    }
    values.insert(values.end(), row.begin(), row.end());
  }
  if (kind == Kind::with_gaps && rows > 4) {
    for (int i = 0; i < k; ++i) {
      values[static_cast<std::size_t>(4 * k + i)] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return values;
}

struct Batch {
  int sequences;
  int positions;
  int k;
  int rows;            // N
  int candidate_rows;  // the row behind the last position is poison
  std::vector<float> log_probs;
  std::vector<TokenId> token_ids;
  std::vector<std::int32_t> budget;
  std::vector<std::int32_t> chain;
  std::vector<TokenId> root_token;
  std::vector<std::int32_t> root_position;
};

Batch make_batch(Kind kind, int sequences, int positions, int k, int rows, SeededRandom& random) {
  Batch batch{sequences, positions, k, rows, positions + 1, {}, {}, {}, {}, {}, {}};
  for (int s = 0; s < sequences; ++s) {
    const std::vector<float> values = candidates_of(kind, positions, k, random);
    batch.log_probs.insert(batch.log_probs.end(), values.begin(), values.end());
    batch.log_probs.insert(batch.log_probs.end(), static_cast<std::size_t>(k), 1e30f);
    for (int i = 0; i < (positions + 1) * k; ++i) {
      batch.token_ids.push_back(static_cast<TokenId>(random.below(1 << 20)));
    }
    // One sequence has the whole budget, others less, some none, one is a chain, one is not there.
    const bool absent = sequences > 2 && s % 5 == 2;
    batch.budget.push_back(
        s == 0 ? rows - 1 : static_cast<int>(random.below(static_cast<std::uint64_t>(rows))));
    batch.chain.push_back(s % 7 == 3 ? 1 : 0);
    batch.root_token.push_back(static_cast<TokenId>(random.below(1000)));
    batch.root_position.push_back(absent ? -1 : static_cast<std::int32_t>(random.below(100000)));
  }
  return batch;
}

struct Trees {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<std::int32_t> positions;
  std::vector<std::uint64_t> ancestors;
  std::vector<std::int32_t> rows;
};

Trees expected_trees(const Batch& batch) {
  const auto n = static_cast<std::size_t>(batch.rows);
  const std::size_t words = (n + 63) / 64;
  const auto all = static_cast<std::size_t>(batch.sequences) * n;
  Trees trees{std::vector<TokenId>(all, 0),
              std::vector<std::int32_t>(all, -1),
              std::vector<std::int32_t>(all, -1),
              std::vector<std::uint64_t>(all * words, 0),
              {}};
  const auto stride = static_cast<std::size_t>(batch.candidate_rows * batch.k);
  for (std::size_t s = 0; s < static_cast<std::size_t>(batch.sequences); ++s) {
    trees.rows.push_back(0);
    if (batch.root_position[s] < 0) continue;
    std::vector<std::uint64_t> masks(n * words);
    TreeBuildTask task;
    task.log_probs = std::span(batch.log_probs).subspan(s * stride, stride);
    task.token_ids = std::span(batch.token_ids).subspan(s * stride, stride);
    task.positions = batch.positions;
    task.k = batch.k;
    task.budget = batch.budget[s];
    task.chain = batch.chain[s] != 0;
    task.root_token = batch.root_token[s];
    task.root_position = batch.root_position[s];
    task.row_tokens = std::span(trees.tokens).subspan(s * n, n);
    task.row_parents = std::span(trees.parents).subspan(s * n, n);
    task.row_positions = std::span(trees.positions).subspan(s * n, n);
    task.ancestors = masks;
    tree_build_ref(std::span(&task, 1));
    trees.rows.back() = 1 + task.nodes;
    const auto own_words = static_cast<std::size_t>(tree_mask_words(task.nodes));
    for (std::size_t row = 0; row <= static_cast<std::size_t>(task.nodes); ++row) {
      std::copy_n(masks.begin() + static_cast<std::ptrdiff_t>(row * own_words), own_words,
                  trees.ancestors.begin() + static_cast<std::ptrdiff_t>((s * n + row) * words));
    }
  }
  return trees;
}

class TreeBuildCuda : public testing::CudaTest {
 protected:
  Trees build(const Batch& batch) {
    const std::size_t all = static_cast<std::size_t>(batch.sequences * batch.rows);
    TreeBuildCall call;
    call.sequences = batch.sequences;
    call.positions = batch.positions;
    call.k = batch.k;
    call.candidate_rows = batch.candidate_rows;
    call.rows_per_sequence = batch.rows;
    const auto log_probs = upload(batch.log_probs);
    const auto token_ids = upload(batch.token_ids);
    const auto budget = upload(batch.budget);
    const auto chain = upload(batch.chain);
    const auto root_token = upload(batch.root_token);
    const auto root_position = upload(batch.root_position);
    const auto tokens = upload(std::vector<TokenId>(all, -99));
    const auto parents = upload(std::vector<std::int32_t>(all, -99));
    const auto positions = upload(std::vector<std::int32_t>(all, -99));
    const auto ancestors = upload(std::vector<std::uint64_t>(
        all * static_cast<std::size_t>(call.mask_words()), ~std::uint64_t{0}));
    const auto rows =
        upload(std::vector<std::int32_t>(static_cast<std::size_t>(batch.sequences), -99));
    call.log_probs = log_probs.data();
    call.token_ids = token_ids.data();
    call.budget = budget.data();
    call.chain = chain.data();
    call.root_token = root_token.data();
    call.root_position = root_position.data();
    call.row_tokens = tokens.data();
    call.row_parents = parents.data();
    call.row_positions = positions.data();
    call.ancestors = ancestors.data();
    call.rows = rows.data();
    EXPECT_TRUE(tree_build(call, stream()).ok());
    synchronize();
    return {download(tokens), download(parents), download(positions), download(ancestors),
            download(rows)};
  }

  void expect_exact(const Batch& batch) {
    const Trees expected = expected_trees(batch);
    const Trees actual = build(batch);
    ASSERT_EQ(actual.rows, expected.rows);
    for (std::size_t row = 0; row < expected.tokens.size(); ++row) {
      ASSERT_EQ(actual.parents[row], expected.parents[row]) << "row " << row;
      ASSERT_EQ(actual.tokens[row], expected.tokens[row]) << "row " << row;
      ASSERT_EQ(actual.positions[row], expected.positions[row]) << "row " << row;
    }
    for (std::size_t word = 0; word < expected.ancestors.size(); ++word) {
      ASSERT_EQ(actual.ancestors[word], expected.ancestors[word]) << "word " << word;
    }
  }
};

TEST_F(TreeBuildCuda, EveryKindOfCandidatesAsTheReference) {
  SeededRandom random(5);
  for (const Kind kind :
       {Kind::random, Kind::coarse, Kind::flat, Kind::peaked, Kind::with_gaps, Kind::tied_pairs}) {
    for (const int rows : {1, 2, 9, 17, 65, 129, 513}) {
      for (const int k : {1, 8, 64}) {
        const int sequences = rows > 200 ? 3 : 8;
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " rows " +
                     std::to_string(rows) + " k " + std::to_string(k));
        expect_exact(make_batch(kind, sequences, 15, k, rows, random));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TreeBuildCuda, RaggedExtentsAsTheReference) {
  SeededRandom random(6);
  for (int round = 0; round < 60; ++round) {
    const auto kind = static_cast<Kind>(random.below(6));
    const int sequences = 1 + static_cast<int>(random.below(32));
    const int positions = static_cast<int>(random.below(32));
    const int k = 1 + static_cast<int>(random.below(64));
    const int rows = 1 + static_cast<int>(random.below(150));
    SCOPED_TRACE("round " + std::to_string(round));
    expect_exact(make_batch(kind, sequences, positions, k, rows, random));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace copse::kernels::cuda
