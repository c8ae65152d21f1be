#pragma once
// One sequence's tree in a block's shared memory. A node is (parent, depth, rank); nodes are rows
// in the end, row 0 the root. Each row keeps a cursor: the rank and the weight of the child that it
// would give next. The cursors are the published code's heap: a child popped from a cursor leaves
// its sibling there, and brings the cursor of its own children along.
#include <cstdint>

#include "base/limits.h"
#include "base/types.h"

namespace copse::kernels::cuda {

inline constexpr int tree_rows_max = 1 + limits::tree_nodes;
inline constexpr int tree_positions_max = limits::draft_block - 1;
inline constexpr int tree_no_parent = -1;

struct TreeShared {
  float log_probs[tree_positions_max * limits::tree_top_k];
  TokenId token_ids[tree_positions_max * limits::tree_top_k];
  TokenId root_token;
  // Rows.
  std::int16_t parent[tree_rows_max];
  std::uint8_t depth[tree_rows_max];
  std::uint8_t rank[tree_rows_max];
  int nodes;
};

struct TreeExtent {
  int positions;
  int k;
  int budget;
};

// Candidates that may be drafted at all: not -infinity, not NaN.
__device__ inline bool is_candidate(const TreeShared& tree, const TreeExtent& extent, int depth,
                                    int rank) {
  if (depth > extent.positions || rank >= extent.k) return false;
  return tree.log_probs[(depth - 1) * extent.k + rank] > -__int_as_float(0x7f800000);
}
__device__ inline double candidate(const TreeShared& tree, const TreeExtent& extent, int depth,
                                   int rank) {
  return static_cast<double>(tree.log_probs[(depth - 1) * extent.k + rank]);
}

constexpr double tree_never = -__builtin_huge_val();

// Weight of a row's first child, and of the sibling behind a child of weight `weight`: in the
// order of operations of the published code. tree_never where there is no candidate.
__device__ inline double first_child_weight(const TreeShared& tree, const TreeExtent& extent,
                                            double weight, int depth) {
  if (!is_candidate(tree, extent, depth + 1, 0)) return tree_never;
  return __dadd_rn(weight, candidate(tree, extent, depth + 1, 0));
}
__device__ inline double sibling_weight(const TreeShared& tree, const TreeExtent& extent,
                                        double weight, int depth, int rank) {
  if (!is_candidate(tree, extent, depth, rank + 1)) return tree_never;
  const double without = __dsub_rn(weight, candidate(tree, extent, depth, rank));
  return __dadd_rn(without, candidate(tree, extent, depth, rank + 1));
}

// A path by its last step: the tuple of ranks down to `parent`, then `rank`.
struct TreePath {
  int parent;
  int rank;
};

// Whether a's tuple of ranks comes before b's: lexicographically, a prefix before its extension.
// Walks up; equal weights are rare.
template <class Nodes>
__device__ bool path_before(const Nodes& nodes, TreePath a, TreePath b) {
  const auto up = [&](TreePath& path) {
    path = {nodes.parent[path.parent], nodes.rank[path.parent]};
  };
  const int depth_a = nodes.depth[a.parent];
  const int depth_b = nodes.depth[b.parent];
  for (int i = depth_a; i > depth_b; --i) up(a);
  for (int i = depth_b; i > depth_a; --i) up(b);
  while (a.parent != b.parent) {
    up(a);
    up(b);
  }
  return a.rank != b.rank ? a.rank < b.rank : depth_a < depth_b;
}

}  // namespace copse::kernels::cuda
