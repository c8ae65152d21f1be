#pragma once
// The scoring role: a warpgroup that multiplies a block's keys with the queries, masks, and turns
// scores into weights. A thread holds, of scores [64][n], rows t = 16 warp + lane / 4 (+ 8) and
// columns 8 j + 2 (lane % 4) (+ 1): register 4 j + 2 (row half) + column.
//
// The softmax is online with a lazy reference: weights are 2^(score - reference), and the reference
// moves to the largest score only when a score exceeds it by more than `slack`. So a block
// usually needs no maximum over its keys, and outputs are seldom rescaled.
#include "kernels/verify_attention/hopper_tile.cuh"

namespace copse::kernels::cuda::hopper {

inline constexpr float slack = 8;  // weights stay below 2^8

template <int n>
struct Scores {
  float value[Tile<n>::registers];
  float sum[n / 4];  // of weights in the thread's columns and rows
};

__device__ inline int score_lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int score_warp() {
  return static_cast<int>(threadIdx.x) % group_threads / 32;
}
__device__ inline int score_thread() {
  return static_cast<int>(threadIdx.x) % group_threads;
}

template <int n>
__device__ void multiply_keys(const Tile<n>& tile, RingPlace place, bool first,
                              unsigned query_parity, Scores<n>& scores) {
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (first) barrier_wait(tile.query_full(chunk), query_parity);
    barrier_wait(tile.chunk_full(place.index), place.parity);
    const std::uint32_t keys = matrix_descriptor(tile.slot(place.index));
    const std::uint32_t queries = matrix_descriptor(tile.queries(chunk));
    products_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // 16 columns are 32 bytes, 2 units of 16
      product<n, 0>(scores.value, keys + 2 * k, queries + 2 * k, chunk > 0 || k > 0);
    }
    place = place.plus(1, Tile<n>::slots);
  }
  products_commit();
  products_wait<0>();
}

// Which of the 64 own rows that follow `node` the thread's query sees.
template <int n>
__device__ std::uint64_t find_mask(const Arguments& args, const Work& work, int node) {
  const int query = score_thread();
  const int row = (work.item->tile * n + query) / args.call.heads;
  if (query >= queries_of<n>(args, *work.item) || row < node) return 0;
  const int after = row - node + 1;  // nodes up to the row itself
  const std::uint64_t mask = after >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << after) - 1;
  if (work.item->ancestors == nullptr) return mask;
  return mask &
         work.item->ancestors[static_cast<std::ptrdiff_t>(row) * work.item->mask_words + node / 64];
}

// Of an own block: each query's mask. Of a page that is not full: its tokens.
template <int n>
__device__ void mask_scores(bool tail, std::uint64_t own_mask, int tokens, Scores<n>& scores) {
  auto& small = small_of();
  if (score_thread() < n) {
    small.masks[score_thread()] = tail ? own_mask : (std::uint64_t{1} << tokens) - 1;
  }
  named_barrier(score_barrier, group_threads);
  const int token = score_warp() * 16 + score_lane() / 4;
#pragma unroll
  for (int i = 0; i < n / 4; ++i) {  // column i % 2 of tile i / 2
    const int at = 4 * (i / 2) + i % 2;
    const std::uint64_t mask = small.masks[8 * (i / 2) + score_lane() % 4 * 2 + i % 2] >> token;
    if ((mask & 1) == 0) scores.value[at] = -INFINITY;
    if ((mask >> 8 & 1) == 0) scores.value[at + 2] = -INFINITY;
  }
}

// Scores as exponents of 2, relative to the references; the largest of the thread's.
template <int n>
__device__ float scale_scores(float scale, Scores<n>& scores) {
  const float* from = small_of().base + score_lane() % 4 * 2;
  float largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
  for (int j = 0; j < n / 8; ++j) {
    const float2 base = *reinterpret_cast<const float2*>(from + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& value = scores.value[4 * j + i];
      value = value * scale - (i % 2 == 0 ? base.x : base.y);
      largest[i] = fmaxf(largest[i], value);
    }
  }
  return fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
}

// Scores are relative to the references. Moves these to the largest scores so far, and with them
// sums; leaves in small.move what outputs so far are to be multiplied with.
template <int n>
__device__ void move_reference(bool first, Scores<n>& scores) {
  auto& small = small_of();
  const int lane = score_lane();
#pragma unroll
  for (int i = 0; i < n / 4; ++i) {
    const int at = 4 * (i / 2) + i % 2;
    float largest = fmaxf(scores.value[at], scores.value[at + 2]);
    for (int distance = 4; distance < 32; distance *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    if (lane < 4) small.of_warp[score_warp()][8 * (i / 2) + lane * 2 + i % 2] = largest;
  }
  named_barrier(score_barrier, group_threads);
  const int query = score_thread();
  if (query < n) {
    const float before = first ? no_score : small.reference[query];
    float largest = -INFINITY;
    for (int warp = 0; warp < group_warps; ++warp) {
      largest = fmaxf(largest, small.of_warp[warp][query]);
    }
    const bool none = before == no_score;
    largest = fmaxf(before, none ? largest : before + largest);
    small.reference[query] = largest;
    small.move[query] = none ? 1.0f : exp2_fast(before - largest);
    const float base = largest == no_score ? 0.0f : largest;
    small.step[query] = (none ? 0.0f : before) - base;
    small.base[query] = base;
  }
  named_barrier(score_barrier, group_threads);
#pragma unroll
  for (int i = 0; i < n / 4; ++i) {
    const int column = 8 * (i / 2) + lane % 4 * 2 + i % 2;
    scores.value[4 * (i / 2) + i % 2] += small.step[column];
    scores.value[4 * (i / 2) + i % 2 + 2] += small.step[column];
    scores.sum[i] *= small.move[column];
  }
}

// Weights as the second factor of the outputs' product: row = query, 64 keys along it.
template <int n>
__device__ void store_weights(const Tile<n>& tile, int buffer, const Scores<n>& scores) {
  const int lane = score_lane();
  // Lane i addresses row i % 8 of matrix i / 8: keys' half (i / 8) % 2 of tile j + i / 16.
  const int unit = score_warp() * 2 + lane / 8 % 2;
  const std::uint32_t row =
      tile.weights(buffer) + (lane / 16 * 8 + lane % 8) * row_bytes + ((unit ^ (lane % 8)) * 16);
#pragma unroll
  for (int j = 0; j + 1 < n / 8; j += 2) {
    const float* v = &scores.value[4 * j];
    store_transposed(row + j * 8 * row_bytes, pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                     pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
  if constexpr (n / 8 % 2 == 1) {
    constexpr int j = n / 8 - 1;
    const float* v = &scores.value[4 * j];
    store_transposed(row + j * 8 * row_bytes, pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
  }
}

// The item's sums over all rows: lanes of a column, then warps.
template <int n>
__device__ void finish_sums(int buffer, Scores<n>& scores) {
  auto& small = small_of();
  named_barrier(score_barrier, group_threads);  // the last readers of of_warp are done
#pragma unroll
  for (int i = 0; i < n / 4; ++i) {
    float sum = scores.sum[i];
    for (int distance = 4; distance < 32; distance *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (score_lane() < 4) {
      small.of_warp[score_warp()][8 * (i / 2) + score_lane() * 2 + i % 2] = sum;
    }
  }
  named_barrier(score_barrier, group_threads);
  const int query = score_thread();
  if (query < n) {
    const auto& sums = small.of_warp;
    small.stats[buffer][query] = {small.reference[query], (sums[0][query] + sums[1][query]) +
                                                              (sums[2][query] + sums[3][query])};
  }
}

template <int n>
__device__ void score_blocks(const Arguments& args, const Tile<n>& tile) {
  auto& small = small_of();
  const float scale = args.call.scale * 1.44269504088896341f;
  RingPlace place;
  RingPlace weights = {0, 1};
  unsigned query_parity = 0;
  Scores<n> scores;
  for (Work work(args); work.exists(); work.next(args)) {
#pragma unroll
    for (int i = 0; i < n / 4; ++i) scores.sum[i] = 0;
    if (score_thread() < n) small.base[score_thread()] = 0;
    named_barrier(score_barrier, group_threads);
    for (int block = work.first_block; block < work.last_block; ++block) {
      const bool first = block == work.first_block;
      const bool last = block + 1 == work.last_block;
      const bool tail = work.tail(block);
      const int tokens = work.tokens(block);
      std::uint64_t own_mask = 0;
      if (tail) {
        own_mask = find_mask<n>(args, work, (block - work.prefix_blocks) * verify_block_tokens);
      }
      multiply_keys(tile, place, first, query_parity, scores);
      if (score_lane() == 0) {
        barrier_arrive(tile.chunk_empty(place.index));  // the rope
        barrier_arrive(tile.scores_done());
        if (last) barrier_arrive(tile.query_empty());
      }
      place = place.plus(chunks, Tile<n>::slots);
      if (tail || tokens < verify_block_tokens) mask_scores(tail, own_mask, tokens, scores);
      const float excess = scale_scores(scale, scores);
      // A query may see its first token in any own block, far below the reference of none.
      const bool move =
          first || tail || named_barrier_any(score_barrier, group_threads, excess > slack);
      if (move) move_reference(first, scores);
#pragma unroll
      for (int i = 0; i < Tile<n>::registers; ++i) {
        scores.value[i] = exp2_fast(scores.value[i]);
        scores.sum[i / 4 * 2 + i % 2] += scores.value[i];
      }
      barrier_wait(tile.weights_empty(weights.index), weights.parity);
      store_weights(tile, weights.index, scores);
      if (move && score_thread() < n) {
        small.rescale[weights.index][score_thread()] = small.move[score_thread()];
      }
      if (score_thread() == 0) small.rescales[weights.index] = move && !first;
      if (last) finish_sums(weights.index, scores);
      fence_async_proxy();
      barrier_arrive(tile.weights_full(weights.index));
      weights = weights.plus(1, Tile<n>::weight_buffers);
    }
    query_parity ^= 1;
  }
}

}  // namespace copse::kernels::cuda::hopper
