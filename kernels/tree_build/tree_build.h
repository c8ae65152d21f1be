#pragma once
// Step 5: from the drafter's log-probabilities to a draft tree, best path first (DDTree,
// arXiv 2604.12989). The order is that of the published reference code, bit for bit: a heap of
// (log-probability of the path, path), the larger sum first; on equal sums the lexicographically
// smaller tuple of 0-based ranks, a prefix before its extension. Sums are float64 over float32
// values; a sibling's is the node's own less its last term plus the sibling's, in that order.
//
// Draft temperature is always 1. Candidates of log-probability -infinity or NaN are never drafted.
//
// For every device: a batch is one launch (one block a sequence), the workspace is fixed, nothing
// is read by the host. Moves positions * k * 8 bytes in and rows * (12 + 8 * mask_words) bytes out.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace copse::kernels {

// One sequence. Row 0 of the outputs is the root (the bonus token), row i the i-th node drafted.
struct TreeBuildTask {
  std::span<const float> log_probs;    // [positions][k], each row descending
  std::span<const TokenId> token_ids;  // [positions][k]
  int positions = 0;                   // block_size - 1
  int k = 0;                           // <= limits::tree_top_k
  int budget = 0;                      // nodes besides the root; fewer where candidates run out
  bool chain = false;                  // the top-1 chain of min(budget, positions) nodes instead
  TokenId root_token = 0;
  std::int32_t root_position = 0;  // absolute

  // Results: room for 1 + budget rows each, ancestors for (1 + budget) * mask_words(budget).
  std::span<TokenId> row_tokens;
  std::span<std::int32_t> row_parents;    // row index, smaller than the row's own; -1 for the root
  std::span<std::int32_t> row_positions;  // root_position + depth: siblings share one
  std::span<std::uint64_t> ancestors;     // [rows][mask_words(nodes)]: bit j of row i: i sees j
  int nodes = 0;                          // besides the root
};

// 64-bit words of one row's ancestor mask in a tree of `nodes` nodes and a root.
constexpr int tree_mask_words(int nodes) {
  return (1 + nodes + 63) / 64;
}

// Memory of a build, allocated once: tree_build itself allocates nothing.
class TreeBuildWorkspace {
 public:
  TreeBuildWorkspace(int nodes_max, int positions_max);

  struct Entry {
    double log_weight;
    std::int32_t parent;  // row
    std::int16_t depth;   // 1 for a child of the root
    std::int16_t rank;    // among the candidates of its position
    std::int32_t path;    // index of its ranks in `paths`
  };
  int nodes_max = 0;
  int positions_max = 0;
  std::vector<Entry> heap;          // at most one entry more than nodes popped
  std::vector<std::uint8_t> paths;  // [2 * nodes_max + 1][positions_max] ranks from the root
};

void tree_build(std::span<TreeBuildTask> tasks, TreeBuildWorkspace& workspace);
// The same by plain loops over sorted tuples, with memory of its own.
void tree_build_ref(std::span<TreeBuildTask> tasks);

}  // namespace copse::kernels
