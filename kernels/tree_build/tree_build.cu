#include "kernels/tree_build/tree_build_cuda.h"

#include <cuda_runtime.h>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/tree_build/tree_best_first.cuh"
#include "kernels/tree_build/tree_heap.cuh"
#include "kernels/tree_build/tree_shared.cuh"

namespace copse::kernels::cuda {
namespace {

// Candidates to shared memory. Returns whether each position's descend from at most 0, as those of
// a softmax do, with nothing between them that is no candidate.
template <int Threads>
__device__ bool load_candidates(const TreeBuildCall& call, int s, TreeShared& tree) {
  constexpr int each = (tree_positions_max * limits::tree_top_k + Threads - 1) / Threads;
  const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(s) * call.candidate_rows * call.k;
  const int count = call.positions * call.k;
  const int thread = static_cast<int>(threadIdx.x);
  float log_probs[each];
  TokenId token_ids[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int at = thread + i * Threads;
    log_probs[i] = at < count ? call.log_probs[first + at] : 0;
    token_ids[i] = at < count ? call.token_ids[first + at] : 0;
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int at = thread + i * Threads;
    if (at >= count) break;
    tree.log_probs[at] = log_probs[i];
    tree.token_ids[at] = token_ids[i];
  }
  if (thread == 0) {
    tree.root_token = call.root_token[s];
    tree.parent[0] = tree_no_parent;
    tree.depth[0] = 0;
    tree.rank[0] = 0;
    tree.nodes = 0;
  }
  __syncthreads();
  bool descend = true;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int at = thread + i * Threads;
    if (at >= count) break;
    const float before = at % call.k == 0 ? 0.0f : tree.log_probs[at - 1];
    descend = descend && (log_probs[i] <= before || !(log_probs[i] > -__int_as_float(0x7f800000)));
  }
  return __syncthreads_and(descend ? 1 : 0) != 0;
}

// The top candidate of each position; ends at the first that is none.
__device__ void build_chain(TreeShared& tree, const TreeExtent& extent) {
  if (threadIdx.x == 0) {
    const int length = min(extent.budget, extent.positions);
    int depth = 1;
    for (; depth <= length && is_candidate(tree, extent, depth, 0); ++depth) {
      tree.parent[depth] = static_cast<std::int16_t>(depth - 1);
      tree.depth[depth] = static_cast<std::uint8_t>(depth);
      tree.rank[depth] = 0;
    }
    tree.nodes = depth - 1;
  }
  __syncthreads();
}

// Ancestors have smaller rows, so one walk up meets the words of a mask from the last to the first.
__device__ void write_mask(const TreeShared& tree, int row, std::uint64_t* mask, int words) {
  int at = row;
  for (int word = words - 1; word >= 0; --word) {
    std::uint64_t bits = 0;
    for (; at >= 64 * word; at = tree.parent[at]) bits |= std::uint64_t{1} << (at - 64 * word);
    mask[word] = bits;
  }
}

__device__ void write_rows(const TreeBuildCall& call, int s, int rows, int root_position,
                           const TreeShared& tree) {
  const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(s) * call.rows_per_sequence;
  const int words = call.mask_words();
  for (int row = static_cast<int>(threadIdx.x); row < call.rows_per_sequence;
       row += static_cast<int>(blockDim.x)) {
    TokenId token = 0;
    int parent = tree_no_parent;
    int position = -1;
    if (row < rows) {
      const int depth = tree.depth[row];
      token = row == 0 ? tree.root_token : tree.token_ids[(depth - 1) * call.k + tree.rank[row]];
      parent = tree.parent[row];
      position = root_position + depth;
    }
    call.row_tokens[first + row] = token;
    call.row_parents[first + row] = parent;
    call.row_positions[first + row] = position;
    write_mask(tree, row < rows ? row : -1, call.ancestors + (first + row) * words, words);
  }
  if (threadIdx.x == 0) call.rows[s] = rows;
}

union Workspace {
  HeapShared heap;
  struct {
    NodeShared nodes;
    SearchShared search;
    SortShared sorting;
  } best_first;
};

template <int Threads>
__global__ void __launch_bounds__(Threads, 1) tree_build_kernel(TreeBuildCall call) {
  __shared__ TreeShared tree;
  __shared__ Workspace work;
  const int s = static_cast<int>(blockIdx.x);
  let_next_start();
  wait_for_previous();
  const int root_position = call.root_position[s];
  const bool chain = call.chain[s] != 0;
  const TreeExtent extent = {call.positions, call.k,
                             max(0, min(call.budget[s], call.rows_per_sequence - 1))};
  const bool descend = load_candidates<Threads>(call, s, tree);
  if (root_position < 0) return write_rows(call, s, 0, root_position, tree);
  if (chain) {
    build_chain(tree, extent);
  } else if (!descend ||
             !build_best_first<Threads>(tree, extent, work.best_first.nodes, work.best_first.search,
                                        work.best_first.sorting)) {
    __syncthreads();
    build_by_heap(tree, work.heap, extent);
  }
  write_rows(call, s, 1 + tree.nodes, root_position, tree);
}

}  // namespace

Status tree_build(const TreeBuildCall& call, Stream stream) {
  CHECK(call.sequences > 0 && call.positions >= 0 && call.positions <= tree_positions_max);
  CHECK(call.k >= 0 && call.k <= limits::tree_top_k && call.candidate_rows >= call.positions);
  CHECK(call.rows_per_sequence > 0 && call.rows_per_sequence <= tree_rows_max);
  const auto blocks = static_cast<unsigned>(call.sequences);
  if (call.rows_per_sequence <= 129) {
    return launch_early("tree_build", tree_build_kernel<256>, {blocks, 256}, stream, call);
  }
  return launch_early("tree_build", tree_build_kernel<512>, {blocks, 512}, stream, call);
}

}  // namespace copse::kernels::cuda
