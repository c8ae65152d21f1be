#pragma once
// From nodes to rows: by weight, then by the tuple of ranks. Nodes fall into as many buckets of
// equal width in cost as there are threads; within a bucket each counts those before it.
#include "kernels/tree_build/tree_nodes.cuh"

namespace copse::kernels::cuda {

struct SortShared {
  int start[513];  // of each bucket in `list`; while counting, its size
  int warp_total[16];
  std::int16_t list[1 + node_capacity];
  unsigned largest;  // bits of the largest cost
};

// Whether a comes before b in the tree.
__device__ inline bool node_before(const NodeShared& nodes, int a, int b) {
  if (nodes.weight[a] != nodes.weight[b]) return nodes.weight[a] > nodes.weight[b];
  return path_before(nodes, {nodes.parent[a], nodes.rank[a]}, {nodes.parent[b], nodes.rank[b]});
}

__device__ inline float node_cost(const NodeShared& nodes, int node) {
  return __double2float_rn(fabs(nodes.weight[node]));
}

// Turns sizes into starts, for as many buckets as threads.
template <int Threads>
__device__ void scan_buckets(SortShared& sorting) {
  constexpr int warps = Threads / 32;
  const int thread = static_cast<int>(threadIdx.x);
  const int size = sorting.start[thread];
  int sum = size;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, sum, distance);
    if (thread % 32 >= distance) sum += before;
  }
  if (thread % 32 == 31) sorting.warp_total[thread / 32] = sum;
  __syncthreads();
  int before = 0;
#pragma unroll
  for (int warp = 0; warp < warps; ++warp) {
    before += warp < thread / 32 ? sorting.warp_total[warp] : 0;
  }
  sorting.start[thread] = before + sum - size;
  if (thread == Threads - 1) sorting.start[Threads] = before + sum;
  __syncthreads();
}

// Sets nodes.row of `count` nodes (with the root), and the rows of the tree up to the budget.
template <int Threads>
__device__ void sort_nodes(const TreeExtent& extent, int count, NodeShared& nodes,
                           SortShared& sorting, TreeShared& tree) {
  constexpr int mine_max = (node_capacity + Threads - 1) / Threads;
  const int thread = static_cast<int>(threadIdx.x);
  sorting.start[thread] = 0;
  if (thread == 0) sorting.largest = 0;
  __syncthreads();
  float largest = 0;
  for (int i = 1 + thread; i < count; i += Threads) largest = fmaxf(largest, node_cost(nodes, i));
  const unsigned bits = __reduce_max_sync(0xffffffffu, __float_as_uint(largest));
  if (thread % 32 == 0) atomicMax(&sorting.largest, bits);
  __syncthreads();
  const float scale = static_cast<float>(Threads) / fmaxf(__uint_as_float(sorting.largest), 1e-30f);
  int bucket[mine_max];
  int place[mine_max];
#pragma unroll
  for (int j = 0; j < mine_max; ++j) {
    const int i = 1 + thread + j * Threads;
    if (i >= count) continue;
    bucket[j] = min(static_cast<int>(node_cost(nodes, i) * scale), Threads - 1);
    place[j] = atomicAdd(&sorting.start[bucket[j]], 1);
  }
  __syncthreads();
  scan_buckets<Threads>(sorting);
#pragma unroll
  for (int j = 0; j < mine_max; ++j) {
    const int i = 1 + thread + j * Threads;
    if (i < count) sorting.list[sorting.start[bucket[j]] + place[j]] = static_cast<std::int16_t>(i);
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < mine_max; ++j) {
    const int i = 1 + thread + j * Threads;
    if (i >= count) continue;
    const int first = sorting.start[bucket[j]];
    int row = 1 + first;
    for (int at = first; at < sorting.start[bucket[j] + 1]; ++at) {
      const int other = sorting.list[at];
      if (other != i && node_before(nodes, other, i)) ++row;
    }
    nodes.row[i] = static_cast<std::int16_t>(row);
  }
  __syncthreads();
  const int rows = min(count, 1 + extent.budget);
  for (int i = 1 + thread; i < count; i += Threads) {
    const int row = nodes.row[i];
    if (row >= rows) continue;
    tree.parent[row] = nodes.row[nodes.parent[i]];
    tree.depth[row] = nodes.depth[i];
    tree.rank[row] = nodes.rank[i];
  }
  if (thread == 0) tree.nodes = rows - 1;
  __syncthreads();
}

}  // namespace copse::kernels::cuda
