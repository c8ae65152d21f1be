#pragma once
// The tree node by node, as the published code builds it: right for any weights and any ties, and
// slow on a GPU. The block's threads keep the cursors of all rows; each step takes the best.
#include "kernels/tree_build/tree_shared.cuh"

namespace copse::kernels::cuda {

struct TreeCursor {
  double weight;
  int row;  // -1: none
};

struct HeapShared {
  double weight[tree_rows_max];  // of each row's next child
  std::uint8_t next_rank[tree_rows_max];
  TreeCursor best[32];  // of each warp
};

__device__ inline bool cursor_before(const TreeShared& tree, const HeapShared& heap, TreeCursor a,
                                     TreeCursor b) {
  if (a.row < 0 || b.row < 0) return b.row < 0 && a.row >= 0;
  if (a.weight != b.weight) return a.weight > b.weight;
  return path_before(tree, {a.row, heap.next_rank[a.row]}, {b.row, heap.next_rank[b.row]});
}

__device__ inline TreeCursor warp_best(const TreeShared& tree, const HeapShared& heap,
                                       TreeCursor cursor) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const TreeCursor other = {__shfl_xor_sync(0xffffffffu, cursor.weight, distance),
                              __shfl_xor_sync(0xffffffffu, cursor.row, distance)};
    if (cursor_before(tree, heap, other, cursor)) cursor = other;
  }
  return cursor;
}

__device__ inline void pop_cursor(TreeShared& tree, HeapShared& heap, const TreeExtent& extent,
                                  TreeCursor best) {
  const int row = ++tree.nodes;
  const int depth = tree.depth[best.row] + 1;
  const int rank = heap.next_rank[best.row];
  tree.parent[row] = static_cast<std::int16_t>(best.row);
  tree.depth[row] = static_cast<std::uint8_t>(depth);
  tree.rank[row] = static_cast<std::uint8_t>(rank);
  heap.weight[best.row] = sibling_weight(tree, extent, best.weight, depth, rank);
  heap.next_rank[best.row] = static_cast<std::uint8_t>(rank + 1);
  heap.weight[row] = first_child_weight(tree, extent, best.weight, depth);
  heap.next_rank[row] = 0;
}

// Called by all threads of the block, tree.nodes = 0 and the root in place.
__device__ inline void build_by_heap(TreeShared& tree, HeapShared& heap, const TreeExtent& extent) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (thread == 0) {
    heap.weight[0] = first_child_weight(tree, extent, 0.0, 0);
    heap.next_rank[0] = 0;
  }
  __syncthreads();
  for (int nodes = 0; nodes < extent.budget; ++nodes) {
    TreeCursor mine = {tree_never, -1};
    for (int row = thread; row <= nodes; row += static_cast<int>(blockDim.x)) {
      const TreeCursor cursor = {heap.weight[row], row};
      if (cursor.weight != tree_never && cursor_before(tree, heap, cursor, mine)) mine = cursor;
    }
    mine = warp_best(tree, heap, mine);
    if (thread % 32 == 0) heap.best[thread / 32] = mine;
    __syncthreads();
    if (thread < 32) {
      mine = warp_best(tree, heap, thread < warps ? heap.best[thread] : TreeCursor{tree_never, -1});
      __syncwarp();  // the other lanes have looked at the rows as well
      if (thread == 0 && mine.row >= 0) pop_cursor(tree, heap, extent, mine);
    }
    __syncthreads();
    if (tree.nodes == nodes) return;
  }
}

}  // namespace copse::kernels::cuda
