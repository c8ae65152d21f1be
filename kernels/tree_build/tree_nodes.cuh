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
  int count;                                 // with the root; more than the capacity if it is full
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
  nodes.count = 1;
  nodes.inexact = 0;
}

// Appends the children of `node` that weigh at least `least` and are not there yet.
__device__ inline void add_children(const TreeShared& tree, const TreeExtent& extent, int node,
                                    double least, NodeShared& nodes) {
  const int lane = static_cast<int>(threadIdx.x) % node_lanes;
  const int shift = static_cast<int>(threadIdx.x) % 32 / node_lanes * node_lanes;
  const unsigned group = ((1u << node_lanes) - 1) << shift;
  const double weight = nodes.weight[node];
  const int depth = nodes.depth[node] + 1;
  int first = nodes.children[node];
  for (int taken = node_lanes; taken == node_lanes; first += taken) {
    const int rank = first + lane;
    double child = tree_never;
    bool exact = true;
    if (is_candidate(tree, extent, depth, rank)) {
      const double term = candidate(tree, extent, depth, rank);
      child = __dadd_rn(weight, term);
      exact = is_exact_sum(weight, term, child);
    }
    const bool wanted = child >= least;
    taken = __popc(__ballot_sync(group, wanted));
    // Siblings behind the next one are not compared with anything yet.
    if (lane <= taken && !exact) nodes.inexact = 1;
    int at = 0;
    if (lane == 0 && taken > 0) at = atomicAdd(&nodes.count, taken);
    at = __shfl_sync(group, at, shift) + lane;
    if (!wanted || at > node_capacity) continue;
    nodes.weight[at] = child;
    nodes.parent[at] = static_cast<std::int16_t>(node);
    nodes.depth[at] = static_cast<std::uint8_t>(depth);
    nodes.rank[at] = static_cast<std::uint8_t>(rank);
    nodes.children[at] = 0;
  }
  __syncwarp(group);
  if (lane == 0) nodes.children[node] = static_cast<std::uint8_t>(first);
}

// All nodes that weigh at least `least`. Returns the count with the root, the same on all threads;
// more than the capacity: nodes are missing.
__device__ inline int expand(const TreeShared& tree, const TreeExtent& extent, double least,
                             NodeShared& nodes) {
  const int groups = static_cast<int>(blockDim.x) / node_lanes;
  int begin = 0;
  int end = nodes.count;
  __syncthreads();
  while (begin < end && end <= 1 + node_capacity) {
    for (int node = begin + static_cast<int>(threadIdx.x) / node_lanes; node < end;
         node += groups) {
      add_children(tree, extent, node, least, nodes);
    }
    __syncthreads();
    begin = end;
    end = nodes.count;
    __syncthreads();
  }
  return end;
}

}  // namespace copse::kernels::cuda
