#pragma once
// A best-first tree without a heap: guess a cost that somewhat more nodes than the budget stay
// under, expand all of them in parallel, sort, cut. The number of nodes grows nearly exponentially
// with the cost, so a first guess that yields too few says how far to go; the second yields enough.
// Guesses decide about time alone: any that yields enough gives the same tree.
#include "kernels/tree_build/tree_sort.cuh"

namespace copse::kernels::cuda {

inline constexpr float infinite_cost = __builtin_huge_valf();
inline constexpr float largest_cost = 3.40282347e38f;

struct SearchShared {
  float prefix[32];  // cost of the top candidates before each position
  int4 counted[16];
  int below;
};

// The `rank`-th smallest of the block's costs, rounded up by up to an eighth. Each thread brings
// `used` of Keys costs; rank from 1. largest_cost if fewer are finite. Called with search.counted
// zero.
template <int Keys>
__device__ float kth_smallest(const float (&costs)[Keys], int used, int rank,
                              SearchShared& search) {
  // Bits of floats that are not negative grow with them. Two bits a step, for which each warp
  // counts below three thresholds at once, packed: no count of a warp reaches 1024.
  static_assert(Keys * 32 < 1024);
  constexpr int low_bit = 20;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t found = 0;
  int step = 0;
#pragma unroll 1
  for (int bit = 30; bit >= low_bit; bit -= 2, ++step) {
    std::uint32_t below = 0;
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
      if (i >= used) break;
      const std::uint32_t key = __float_as_uint(costs[i]);
#pragma unroll
      for (std::uint32_t digit = 0; digit < 3; ++digit) {
        below += (key < found + ((digit + 1) << bit) ? 1u : 0u) << (10 * digit);
      }
    }
    below = __reduce_add_sync(0xffffffffu, below);
    if (lane < 3) {
      int* counted = &search.counted[step].x;
      atomicAdd(counted + lane, static_cast<int>((below >> (10 * lane)) & 1023));
    }
    __syncthreads();
    const int4 counted = search.counted[step];
    const std::uint32_t digit =
        (counted.x < rank ? 1u : 0u) + (counted.y < rank ? 1u : 0u) + (counted.z < rank ? 1u : 0u);
    found += digit << bit;
  }
  return fminf(__uint_as_float(found | ((1u << low_bit) - 1)), largest_cost);
}

// Of the paths that leave the top candidates at their last step only, the cost of the
// `wanted`-th: at least so many nodes do not exceed it.
template <int Threads>
__device__ float first_guess(const TreeShared& tree, const TreeExtent& extent, int wanted,
                             SearchShared& search) {
  constexpr int keys_max = (tree_positions_max * limits::tree_top_k + Threads - 1) / Threads;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 32) {
    float sum = thread < extent.positions ? tree.log_probs[thread * extent.k] : 0.0f;
    const float own = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, sum, distance);
      if (thread >= distance) sum += before;
    }
    search.prefix[thread] = sum - own;
  }
  if (thread < 16) search.counted[thread] = {0, 0, 0, 0};
  __syncthreads();
  const int used = (extent.positions * extent.k + Threads - 1) / Threads;
  float costs[keys_max];
#pragma unroll
  for (int i = 0; i < keys_max; ++i) {
    const int at = thread + i * Threads;
    costs[i] = infinite_cost;
    if (i >= used) break;
    if (at < extent.positions * extent.k) {
      const float cost = -(search.prefix[at / extent.k] + tree.log_probs[at]);
      costs[i] = cost >= 0 ? cost : infinite_cost;  // NaN
    }
  }
  return kth_smallest(costs, used, wanted, search);
}

// A cost that about `wanted` nodes do not exceed, from `count` that do not exceed `guess` and how
// many of them do not exceed three quarters of it.
template <int Threads>
__device__ float next_guess(float guess, int wanted, int count, const NodeShared& nodes,
                            SearchShared& search) {
  if (threadIdx.x == 0) search.below = 0;
  __syncthreads();
  int below = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) {
    below += -nodes.weight[i] <= 0.75 * static_cast<double>(guess) ? 1 : 0;
  }
  below = __reduce_add_sync(0xffffffffu, below);
  if (threadIdx.x % 32 == 0 && below > 0) atomicAdd(&search.below, below);
  __syncthreads();
  const float growth = fmaxf(__logf(static_cast<float>(count) / static_cast<float>(search.below)),
                             0.1f);  // over a quarter of the guess
  const float steps = __logf(static_cast<float>(wanted) / static_cast<float>(count)) / growth;
  return guess * (1 + 0.25f * fminf(steps, 8.0f));
}

// Paths to ask the first guess for. Those that leave the top candidates once are only a part of all
// that cost no more, a small one where there are many: so small budgets get enough nodes at once,
// and large ones not more than there is room for.
__device__ inline int first_wanted(int budget) {
  if (budget <= 16) return budget;
  return budget <= 128 ? 16 + (budget - 16) * 3 / 8 : 58 + (budget - 128) / 12;
}

// False where the nodes' order is in doubt: nothing of the tree is written then.
template <int Threads>
__device__ bool build_best_first(TreeShared& tree, const TreeExtent& extent, NodeShared& nodes,
                                 SearchShared& search, SortShared& sorting) {
  constexpr int tries_max = 10;
  if (threadIdx.x == 0) start_nodes(nodes);
  float guess = first_guess<Threads>(tree, extent, first_wanted(extent.budget), search);
  float low = 0;               // the largest that yielded too few
  float high = infinite_cost;  // the smallest that yielded more than there is room for
  int before = 0;
  int count = 1;
  for (int tries = 0; tries < tries_max; ++tries) {
    count = expand(tree, extent, -static_cast<double>(guess), count, nodes);
    if (nodes.inexact != 0) return false;
    if (count > 1 + node_capacity) {
      high = guess;
      before = 0;
      count = 1;
      if (threadIdx.x == 0) nodes.children[0] = 0;
      __syncthreads();
      guess = low + 0.5f * (high - low);
      continue;
    }
    if (count > extent.budget || guess == largest_cost) {
      sort_nodes<Threads>(extent, count, nodes, sorting, tree);
      return true;
    }
    // Where nothing was added there may be nothing left.
    low = guess;
    const int wanted = extent.budget + extent.budget / 6 + 2;
    guess =
        count == before ? largest_cost : next_guess<Threads>(guess, wanted, count, nodes, search);
    if (guess >= high) guess = low + 0.5f * (high - low);
    before = count;
  }
  return false;
}

}  // namespace copse::kernels::cuda
