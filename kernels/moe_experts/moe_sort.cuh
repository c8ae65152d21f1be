#pragma once
// Pairs (row, chosen expert) sorted by expert, then by row, by one block. No order depends on
// timing: counts are sums of integers, places come from bit masks of rows.
#include <cuda_runtime.h>

#include <cstdint>

namespace copse::kernels::cuda {

// Rows that one pass of masks covers.
inline constexpr int sort_rows = 128;
inline constexpr int mask_words = sort_rows / 32;
// Rows of one entry: what one pass over an expert's weights serves.
inline constexpr int entry_rows = 32;

// A pair as a number: its row, and which of the row's chosen experts.
__device__ inline int make_pair_number(int row, int slot) {
  return row << 8 | slot;
}
__device__ inline int row_of(int pair) {
  return pair >> 8;
}
__device__ inline int slot_of(int pair) {
  return pair & 255;
}

// An entry is up to entry_rows pairs of one expert; an expert with more has several.
struct SortedPairs {
  int* entries;  // how many there are
  int* expert;   // [entries]
  int* first;    // [entries + 1] places in `pair`
  int* pair;
};

struct SortInput {
  const std::int32_t* ids;
  int rows;
  int experts_per_token;
  int first_expert;
  int experts;  // <= 2 * threads of the block

  __device__ int expert(int pair) const {
    const int id = ids[pair];
    const int local = id - first_expert;
    return id >= 0 && local >= 0 && local < experts ? local : -1;
  }
};

// int32 words of scratch in shared memory.
__host__ __device__ constexpr int sort_scratch_words(int experts) {
  return (mask_words + 2) * experts + 32;
}

namespace sorting {

// Exclusive sums over the block's threads; `totals` [32] in shared memory. Waits for all.
__device__ inline unsigned exclusive_sum(unsigned value, unsigned* totals, unsigned& all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  unsigned sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) totals[warp] = sum;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  unsigned through = lane < warps ? totals[lane] : 0;  // this and the warps before
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += other;
  }
  all = __shfl_sync(0xffffffffu, through, 31);
  const unsigned before = __shfl_sync(0xffffffffu, through, (warp + 31) % 32);
  return (warp == 0 ? 0 : before) + sum - value;
}

__device__ inline void set_masks(const SortInput& in, int first_row, int* masks) {
  const int end = min(in.rows, first_row + sort_rows) * in.experts_per_token;
#pragma unroll 1
  for (int p = first_row * in.experts_per_token + static_cast<int>(threadIdx.x); p < end;
       p += static_cast<int>(blockDim.x)) {
    const int expert = in.expert(p);
    const int row = p / in.experts_per_token - first_row;
    if (expert >= 0) atomicOr(&masks[expert * mask_words + row / 32], 1 << row % 32);
  }
}

__device__ inline void place_pairs(const SortInput& in, int first_row, const int* masks,
                                   const int* offsets, int* pairs) {
  const int end = min(in.rows, first_row + sort_rows) * in.experts_per_token;
#pragma unroll 1
  for (int p = first_row * in.experts_per_token + static_cast<int>(threadIdx.x); p < end;
       p += static_cast<int>(blockDim.x)) {
    const int expert = in.expert(p);
    if (expert < 0) continue;
    const int row = p / in.experts_per_token - first_row;
    int place =
        offsets[expert] + __popc(masks[expert * mask_words + row / 32] & ((1 << row % 32) - 1));
    for (int w = 0; w < row / 32; ++w) place += __popc(masks[expert * mask_words + w]);
    pairs[place] = make_pair_number(row + first_row, p % in.experts_per_token);
  }
}

// Entries of each expert, and in `offsets` its first place.
__device__ inline void make_entries(const SortInput& in, const int* counts, int* offsets,
                                    unsigned* totals, const SortedPairs& out) {
  unsigned packed[2];  // entries in the upper half, pairs in the lower
  for (int i = 0; i < 2; ++i) {
    const int expert = static_cast<int>(threadIdx.x) * 2 + i;
    const int count = expert < in.experts ? counts[expert] : 0;
    packed[i] = static_cast<unsigned>((count + entry_rows - 1) / entry_rows) << 16 |
                static_cast<unsigned>(count);
  }
  unsigned all = 0;
  unsigned before = exclusive_sum(packed[0] + packed[1], totals, all);
  for (int i = 0; i < 2; ++i) {
    const int expert = static_cast<int>(threadIdx.x) * 2 + i;
    const int first = static_cast<int>(before & 0xffffu);
    if (expert < in.experts) offsets[expert] = first;
    for (unsigned n = 0; n < packed[i] >> 16; ++n) {
      out.expert[(before >> 16) + n] = expert;
      out.first[(before >> 16) + n] = first + static_cast<int>(n) * entry_rows;
    }
    before += packed[i];
  }
  if (threadIdx.x == 0) {
    *out.entries = static_cast<int>(all >> 16);
    out.first[all >> 16] = static_cast<int>(all & 0xffffu);
  }
}

}  // namespace sorting

// The pairs of a single row, by each warp for itself: all write the same.
__device__ inline void sort_row(const SortInput& in, int lane, const SortedPairs& out) {
  const int expert = lane < in.experts_per_token ? in.expert(lane) : -1;
  const unsigned here = __ballot_sync(0xffffffffu, expert >= 0);
  const int place = __popc(here & ((1u << lane) - 1));
  if (expert >= 0) {
    out.expert[place] = expert;
    out.first[place] = place;
    out.pair[place] = make_pair_number(0, lane);
  }
  if (lane == 0) {
    *out.entries = __popc(here);
    out.first[__popc(here)] = __popc(here);
  }
  __syncwarp();
}

// By all threads of a block; `scratch` [sort_scratch_words] in shared memory. Ends with a barrier.
__device__ inline void sort_pairs(const SortInput& in, int* scratch, const SortedPairs& out) {
  int* masks = scratch;
  int* counts = masks + mask_words * in.experts;
  int* offsets = counts + in.experts;
  auto* totals = reinterpret_cast<unsigned*>(offsets + in.experts);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = thread; i < (mask_words + 1) * in.experts; i += threads) scratch[i] = 0;
  __syncthreads();
  const int pairs = in.rows * in.experts_per_token;
#pragma unroll 1
  for (int p = thread; p < pairs; p += threads) {
    const int expert = in.expert(p);
    if (expert < 0) continue;
    const int row = p / in.experts_per_token;
    atomicAdd(&counts[expert], 1);
    if (row < sort_rows) atomicOr(&masks[expert * mask_words + row / 32], 1 << row % 32);
  }
  __syncthreads();
  sorting::make_entries(in, counts, offsets, totals, out);
  __syncthreads();
  sorting::place_pairs(in, 0, masks, offsets, out.pair);
  for (int row = sort_rows; row < in.rows; row += sort_rows) {
    __syncthreads();
#pragma unroll 1
    for (int e = thread; e < in.experts; e += threads) {
      for (int w = 0; w < mask_words; ++w) {
        offsets[e] += __popc(masks[e * mask_words + w]);
        masks[e * mask_words + w] = 0;
      }
    }
    __syncthreads();
    sorting::set_masks(in, row, masks);
    __syncthreads();
    sorting::place_pairs(in, row, masks, offsets, out.pair);
  }
  __syncthreads();
}

}  // namespace copse::kernels::cuda
