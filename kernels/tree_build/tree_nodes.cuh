#pragma once
// All nodes of at most some cost, level by level: a node's cost is -log-probability of its path,
// and no node costs less than its parent or its elder sibling, so a best-first tree is a sorted
// prefix of such a set. Weights are those of the published code as long as no sum rounds: then the
// order of its additions does not matter. Where one does, or where candidates do not descend from
// 0, the caller builds by heap.
#include "kernels/tree_build/tree_shared.cuh"

namespace copse::kernels::cuda {

inline constexpr int node_capacity = 1024;  // besides the root

struct NodeShared {
  double weight[1 + node_capacity];
  std::int16_t parent[1 + node_capacity];
  std::uint8_t depth[1 + node_capacity];
  std::uint8_t rank[1 + node_capacity];
  std::uint8_t children[1 + node_capacity];  // so far; the next one has this rank
  std::int16_t row[1 + node_capacity];       // in the tree, once sorted
  int added[3];                              // by the level in progress and those beside it
  int inexact;
};

inline constexpr int node_lanes = 8;  // threads that look at the children of one node

__device__ inline bool is_exact_sum(double a, double b, double sum) {
  return __dsub_rn(sum, a) == b && __dsub_rn(sum, b) == a;
}

__device__ inline void start_nodes(NodeShared& nodes) {
  nodes.weight[0] = 0;
  nodes.parent[0] = tree_no_parent;
  nodes.depth[0] = 0;
  nodes.rank[0] = 0;
  nodes.children[0] = 0;
  nodes.row[0] = 0;
  nodes.added[0] = nodes.added[1] = nodes.added[2] = 0;
  nodes.inexact = 0;
}

// Appends the children that weigh at least `least` and are not there yet, of the node of each group
// of lanes; whole warps call it, `node` is negative where there is none. Rows from `end` on are
// free but for the first nodes.added[slot].
__device__ inline void add_children(const TreeShared& tree, const TreeExtent& extent, int node,
                                    double least, int end, int slot, NodeShared& nodes) {
  constexpr unsigned all = 0xffffffffu;
  const int warp_lane = static_cast<int>(threadIdx.x) % 32;
  const int lane = warp_lane % node_lanes;
  const int shift = warp_lane - lane;
  const int from = max(node, 0);
  const double weight = nodes.weight[from];
  const int depth = nodes.depth[from] + 1;
  int first = nodes.children[from];
  bool more = node >= 0;
  while (__any_sync(all, more)) {
    const int rank = first + lane;
    double child = tree_never;
    bool exact = true;
    if (more && is_candidate(tree, extent, depth, rank)) {
      const double term = candidate(tree, extent, depth, rank);
      child = __dadd_rn(weight, term);
      exact = is_exact_sum(weight, term, child);
    }
    const bool wanted = child >= least;
    const unsigned wanting = __ballot_sync(all, wanted);
    const int taken = __popc((wanting >> shift) & ((1u << node_lanes) - 1));
    // Siblings behind the next one are not compared with anything yet.
    if (lane <= taken && !exact) nodes.inexact = 1;
    int at = 0;
    if (warp_lane == 0 && wanting != 0) at = atomicAdd(&nodes.added[slot], __popc(wanting));
    at = end + __shfl_sync(all, at, 0) + __popc(wanting & ((1u << warp_lane) - 1));
    if (wanted && at <= node_capacity) {
      nodes.weight[at] = child;
      nodes.parent[at] = static_cast<std::int16_t>(node);
      nodes.depth[at] = static_cast<std::uint8_t>(depth);
      nodes.rank[at] = static_cast<std::uint8_t>(rank);
      nodes.children[at] = 0;
    }
    if (more) first += taken;
    more = more && taken == node_lanes;
  }
  __syncwarp();
  if (node >= 0 && lane == 0) nodes.children[node] = static_cast<std::uint8_t>(first);
}

// All nodes that weigh at least `least`; `count` are there, with the root. Returns how many are
// then, the same on all threads; more than the capacity: nodes are missing. Called with
// nodes.added zero; leaves it so.
__device__ inline int expand(const TreeShared& tree, const TreeExtent& extent, double least,
                             int count, NodeShared& nodes) {
  constexpr int groups = 32 / node_lanes;  // of a warp
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int group = thread % 32 / node_lanes;
  int begin = 0;
  int end = count;
  int slot = 0;
  while (begin < end && end <= 1 + node_capacity) {
    const int next_slot = slot == 2 ? 0 : slot + 1;
    // Nobody reads it any more, and nobody counts there before the barrier.
    if (thread == 0) nodes.added[next_slot] = 0;
    for (int first = begin + thread / 32 * groups; first < end; first += warps * groups) {
      const int node = first + group;
      add_children(tree, extent, node < end ? node : -1, least, end, slot, nodes);
    }
    __syncthreads();
    begin = end;
    end += nodes.added[slot];
    slot = next_slot;
  }
  __syncthreads();
  if (thread == 0) nodes.added[0] = nodes.added[1] = nodes.added[2] = 0;
  __syncthreads();
  return end;
}

}  // namespace copse::kernels::cuda
