#pragma once
// Step 7: walk the verified tree along the target's own tokens and say what is kept. Starting at
// the root, while the target's token at the current node is the token of one of its children, go
// there; the target's token at the last node is the bonus. Every emitted token is a draw of the
// target under its own prefix, so the output is the target's at any temperature.
//
// For every device: one launch for the batch (one warp a sequence), no workspace, nothing read by
// the host. Moves rows * 12 bytes a sequence.
#include <cstdint>
#include <span>

#include "base/types.h"

namespace copse::kernels {

// One sequence. Emitted token i is row_targets[accepted[i]], for i < kept. Compaction: accepted[i]
// is the scratch row whose keys belong to position prefix_length + i, for i < kept; rows ascend
// and accepted[i] >= i.
struct TreeAcceptTask {
  std::span<const TokenId> row_tokens;        // [rows]; row 0 is the root
  std::span<const std::int32_t> row_parents;  // [rows], -1 for the root; each smaller than its row
  std::span<const TokenId> row_targets;       // [rows] the target's token after each row
  std::span<const TokenId> end_tokens;        // the first emitted one is the last kept
  int remaining = 0;                          // tokens that may still be emitted, >= 1

  std::span<std::int32_t> accepted;  // room for the deepest path and its root
  int walk_length = 0;               // accepted rows with the root, before any cut
  int kept = 0;                      // of those, after the cuts: 1 .. walk_length
  bool at_end = false;               // the last emitted token is an end token
};

void tree_accept(std::span<TreeAcceptTask> tasks);

}  // namespace copse::kernels
