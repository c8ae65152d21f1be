#pragma once
// tree_build.h on a GPU: the trees of a batch in one launch, one block a sequence, each exactly
// that of tree_build_ref. S = sequences, N = rows_per_sequence; packed row = s * N + i, row 0 of a
// sequence is its root (the bonus token). Padding rows: token 0, parent -1, position -1, no bits.
//
// Counts are read on the device; no workspace. Moves S * positions * k * 8 bytes in and
// S * N * (12 + 8 * mask_words) bytes out.
#include <cstdint>

#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

struct TreeBuildCall {
  int sequences = 0;
  int positions = 0;          // candidates of so many positions, < limits::draft_block
  int k = 0;                  // <= limits::tree_top_k
  int candidate_rows = 0;     // rows of k candidates from one sequence to the next, >= positions
  int rows_per_sequence = 0;  // N, <= 1 + limits::tree_nodes

  const float* log_probs = nullptr;      // [S][candidate_rows][k], each row descending
  const TokenId* token_ids = nullptr;    // likewise
  const std::int32_t* budget = nullptr;  // [S] nodes besides the root; at most N - 1 are built
  const std::int32_t* chain = nullptr;   // [S] not 0: the top-1 chain instead
  const TokenId* root_token = nullptr;   // [S]
  const std::int32_t* root_position = nullptr;  // [S] absolute; -1: no rows at all

  TokenId* row_tokens = nullptr;          // [S][N]
  std::int32_t* row_parents = nullptr;    // [S][N] row of its own sequence, -1 for the root
  std::int32_t* row_positions = nullptr;  // [S][N]
  std::uint64_t* ancestors = nullptr;     // [S][N][mask_words()]: bit j of row i: i sees j
  std::int32_t* rows = nullptr;           // [S] 1 + nodes, or 0

  constexpr int mask_words() const { return (rows_per_sequence + 63) / 64; }
};

Status tree_build(const TreeBuildCall& call, Stream stream);

}  // namespace copse::kernels::cuda
