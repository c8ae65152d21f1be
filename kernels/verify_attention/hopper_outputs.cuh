#pragma once
// The output role: two warpgroups add values times weights, each for every other value chunk. A
// thread holds, of outputs [64 values][n] of a chunk, what the scoring role holds of scores.
#include "kernels/verify_attention/hopper_tile.cuh"

namespace copse::kernels::cuda::hopper {

inline constexpr int chunks_of_group = value_chunks / 2;

template <int n>
struct Outputs {
  float value[chunks_of_group][Tile<n>::registers];
};

__device__ inline int output_half() {
  return static_cast<int>(threadIdx.x) / group_threads - output_group;
}
__device__ inline int output_lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
// The first of the thread's values of its chunk c; the second is 8 further.
__device__ inline int output_value(int c) {
  const int warp = static_cast<int>(threadIdx.x) % group_threads / 32;
  return (2 * c + output_half()) * chunk_columns + warp * 16;
}

template <int n>
__device__ void rescale_outputs(const float* rescale, Outputs<n>& out) {
#pragma unroll
  for (int j = 0; j < n / 8; ++j) {
    const float2 factor = *reinterpret_cast<const float2*>(rescale + 8 * j + output_lane() % 4 * 2);
#pragma unroll
    for (int c = 0; c < chunks_of_group; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out.value[c][4 * j + i] *= i % 2 == 0 ? factor.x : factor.y;
    }
  }
}

template <int n, int pending>
__device__ void release_chunk(const Tile<n>& tile, RingPlace place) {
  products_wait<pending>();
  if (output_lane() == 0) {
    constexpr int c = chunks_of_group - 1 - pending;
    const RingPlace at = place.plus(1 + 2 * c + output_half(), Tile<n>::slots);
    barrier_arrive(tile.chunk_empty(at.index));
  }
}

template <int n>
__device__ void multiply_values(const Tile<n>& tile, RingPlace place, int buffer, bool first,
                                Outputs<n>& out) {
  const std::uint32_t weights = matrix_descriptor(tile.weights(buffer));
#pragma unroll
  for (int c = 0; c < chunks_of_group; ++c) {
    const RingPlace at = place.plus(1 + 2 * c + output_half(), Tile<n>::slots);
    barrier_wait(tile.chunk_full(at.index), at.parity);
    const std::uint32_t values = matrix_descriptor(tile.slot(at.index));
    products_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // 16 keys: 16 rows of the chunk, 32 bytes of a row of weights
      product<n, 1>(out.value[c], values + k * (16 * row_bytes / 16), weights + 2 * k,
                    !first || k > 0);
    }
    products_commit();
  }
  release_chunk<n, 3>(tile, place);
  release_chunk<n, 2>(tile, place);
  release_chunk<n, 1>(tile, place);
  release_chunk<n, 0>(tile, place);
}

// A thread's four values of (chunk, tile of 8 queries) as bf16 into out: turned so that a thread
// has neighbours of one query. By whole warps.
__device__ inline void store_tile(const Arguments& args, const float (&value)[4], int place,
                                  int query, int queries, int column) {
  const int lane = output_lane();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t pair = transpose(pack_bf16(value[2 * half], value[2 * half + 1]));
    if (query + lane / 4 < queries) {
      Bf16* to = args.call.out + static_cast<std::ptrdiff_t>(place + query + lane / 4) * latent +
                 column + 8 * half;
      reinterpret_cast<std::uint32_t*>(to)[lane % 4] = pair;
    }
  }
}

template <int n>
__device__ void store_outputs(const Arguments& args, const VerifyItem& item, const float2* stats,
                              const Outputs<n>& out) {
  const int lane = output_lane();
  const int place = first_query<n>(args, item);
  const int queries = queries_of<n>(args, item);
#pragma unroll
  for (int j = 0; j < n / 8; ++j) {
    const float even = 1.0f / stats[8 * j + lane % 4 * 2].y;
    const float odd = 1.0f / stats[8 * j + lane % 4 * 2 + 1].y;
#pragma unroll
    for (int c = 0; c < chunks_of_group; ++c) {
      const float* v = &out.value[c][4 * j];
      const float scaled[4] = {v[0] * even, v[1] * odd, v[2] * even, v[3] * odd};
      store_tile(args, scaled, place, 8 * j, queries, output_value(c));
    }
  }
}

// A partial result is [n / 8 tiles of queries][8 chunks][4 warps] units of 32 float4, one a lane,
// as the accumulators stand.
inline constexpr int units_of_tile = value_chunks * group_warps;

__device__ inline int unit_of(int j, int c) {
  const int warp = static_cast<int>(threadIdx.x) % group_threads / 32;
  return j * units_of_tile + (2 * c + output_half()) * group_warps + warp;
}

// Unscaled sums for the merge, and what they are relative to; then tells the tile's counter.
template <int n>
__device__ void store_partial(const Arguments& args, const VerifyItem& item, const float2* stats,
                              const Outputs<n>& out) {
  const VerifyWorkspace& workspace = args.call.workspace;
  const int thread = static_cast<int>(threadIdx.x) - output_group * group_threads;
  const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(item.partial) * n;
  if (thread < n) workspace.stats[first + thread] = stats[thread];
  auto* to = reinterpret_cast<float4*>(workspace.partials + first * latent) + output_lane();
#pragma unroll
  for (int j = 0; j < n / 8; ++j) {
#pragma unroll
    for (int c = 0; c < chunks_of_group; ++c) {
      const float* v = &out.value[c][4 * j];
      to[unit_of(j, c) * 32] = {v[0], v[1], v[2], v[3]};
    }
  }
  named_barrier(output_barrier, output_threads);
  if (thread == 0) {
    __threadfence();
    atomicAdd(tile_counter(args, item), 1u);
  }
}

template <int n>
__device__ void add_values(const Arguments& args, const Tile<n>& tile) {
  auto& small = small_of<n>();
  const int items = args.call.workspace.plan->items;
  RingPlace place;
  RingPlace weights;
  Outputs<n> out;
  for (int index = static_cast<int>(blockIdx.x); index < items;
       index += static_cast<int>(gridDim.x)) {
    const VerifyItem& item = args.call.workspace.items[index];
    const int blocks = item.last_block - item.first_block;
    for (int block = 0;; ++block) {
      const bool first = block == 0;
      barrier_wait(tile.weights_full(weights.index), weights.parity);
      if (!first && small.rescales[weights.index] != 0) {
        rescale_outputs<n>(small.rescale[weights.index], out);
      }
      multiply_values(tile, place, weights.index, first, out);
      place = place.plus(chunks, Tile<n>::slots);
      if (block + 1 == blocks) break;
      if (output_lane() == 0) barrier_arrive(tile.weights_empty(weights.index));
      weights = weights.plus(1, Tile<n>::weight_buffers);
    }
    const float2* stats = small.stats[weights.index];
    if (item.splits > 1) {
      store_partial(args, item, stats, out);
    } else {
      store_outputs(args, item, stats, out);
    }
    // Only now: the buffer's stats were read.
    __syncwarp();
    if (output_lane() == 0) barrier_arrive(tile.weights_empty(weights.index));
    weights = weights.plus(1, Tile<n>::weight_buffers);
  }
}

}  // namespace copse::kernels::cuda::hopper
