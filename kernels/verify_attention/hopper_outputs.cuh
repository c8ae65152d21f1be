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

// Makes the rows of a block that hold no token zero in the group's chunks: their weights will be
// zero, but zero times whatever stands there must be zero too. Scores of these rows are masked, so
// that they may be read meanwhile.
template <int n>
__device__ void clear_rows(const Tile<n>& tile, RingPlace place, int tokens) {
  constexpr int units = row_bytes / 16;
  for (int c = 0; c < chunks_of_group; ++c) {
    const RingPlace at = place.plus(1 + 2 * c + output_half(), Tile<n>::slots);
    barrier_wait(tile.chunk_full(at.index), at.parity);
    auto* rows =
        reinterpret_cast<uint4*>(hopper_memory + Tile<n>::ring_at + at.index * chunk_bytes);
    for (int i = tokens * units + static_cast<int>(threadIdx.x) % group_threads;
         i < verify_block_tokens * units; i += group_threads) {
      rows[i] = {0, 0, 0, 0};
    }
  }
  fence_async_proxy();
  named_barrier(clear_barrier + output_half(), group_threads);
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

template <int n, int c, int pending>
__device__ void release_chunk(const Tile<n>& tile, RingPlace place) {
  products_wait<pending>();
  if (output_lane() == 0) {
    const RingPlace at = place.plus(1 + 2 * c + output_half(), Tile<n>::slots);
    barrier_arrive(tile.chunk_empty(at.index));
  }
}

template <int n, int c>
__device__ void multiply_chunk(const Tile<n>& tile, RingPlace place, std::uint32_t weights,
                               bool first, Outputs<n>& out) {
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

// next_parity: of scores_done when the next block's scores are.
template <int n>
__device__ void multiply_values(const Tile<n>& tile, RingPlace place, int buffer, bool first,
                                bool last, unsigned next_parity, Outputs<n>& out) {
  const std::uint32_t weights = matrix_descriptor(tile.weights(buffer));
  multiply_chunk<n, 0>(tile, place, weights, first, out);
  if (Tile<n>::scores_first && !last) {
    release_chunk<n, 0, 0>(tile, place);
    barrier_wait(tile.scores_done(), next_parity);
    multiply_chunk<n, 1>(tile, place, weights, first, out);
    multiply_chunk<n, 2>(tile, place, weights, first, out);
    multiply_chunk<n, 3>(tile, place, weights, first, out);
  } else {
    multiply_chunk<n, 1>(tile, place, weights, first, out);
    multiply_chunk<n, 2>(tile, place, weights, first, out);
    multiply_chunk<n, 3>(tile, place, weights, first, out);
    release_chunk<n, 0, 3>(tile, place);
  }
  release_chunk<n, 1, 2>(tile, place);
  release_chunk<n, 2, 1>(tile, place);
  release_chunk<n, 3, 0>(tile, place);
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

// A partial result has [n / 8 tiles of queries][8 chunks][4 warps] units of 32 lanes x 4 bf16, as
// the accumulators stand: bf16, since storing and reading partial results is what short prefixes
// wait for. Units of a tile's splits stand side by side, [unit][split], and so do stats,
// [query][split]: who joins some units reads one piece of memory.
inline constexpr int units_of_tile = value_chunks * group_warps;
inline constexpr int unit_bytes = 32 * 4 * 2;

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
  const std::ptrdiff_t first = tile_partials(item) * n;
  int splits = item.splits;
  asm volatile("" : "+r"(splits));  // addresses are for here: kept over all blocks they would spill
  if (thread < n) workspace.stats[first + thread * splits + item.split] = stats[thread];
  auto* to = reinterpret_cast<uint2*>(static_cast<Bf16*>(workspace.partials) + first * latent) +
             item.split * 32 + output_lane();
#pragma unroll
  for (int j = 0; j < n / 8; ++j) {
#pragma unroll
    for (int c = 0; c < chunks_of_group; ++c) {
      const float* v = &out.value[c][4 * j];
      to[unit_of(j, c) * splits * 32] = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
    }
  }
  named_barrier(output_barrier, output_threads);
  if (thread == 0) add_release(tile_counter(args, item));
}

template <int n>
__device__ void add_values(const Arguments& args, const Tile<n>& tile) {
  auto& small = small_of();
  RingPlace place;
  RingPlace weights;
  unsigned next_parity = 1;
  Outputs<n> out;
  for (Work work(args); work.exists(); work.next(args)) {
    for (int block = work.first_block; block < work.last_block; ++block) {
      const bool first = block == work.first_block;
      const bool last = block + 1 == work.last_block;
      const int tokens = work.tokens(block);
      if (tokens < verify_block_tokens) clear_rows(tile, place, tokens);
      barrier_wait(tile.weights_full(weights.index), weights.parity);
      if (!first && small.rescales[weights.index] != 0) {
        rescale_outputs<n>(small.rescale[weights.index], out);
      }
      multiply_values(tile, place, weights.index, first, last, next_parity, out);
      place = place.plus(chunks, Tile<n>::slots);
      next_parity ^= 1;
      if (last) {
        const float2* stats = small.stats[weights.index];
        if (work.item->splits > 1) {
          store_partial(args, *work.item, stats, out);
        } else {
          store_outputs(args, *work.item, stats, out);
        }
        __syncwarp();  // the buffer's stats were read
      }
      if (output_lane() == 0) barrier_arrive(tile.weights_empty(weights.index));
      weights = weights.plus(1, Tile<n>::weight_buffers);
    }
  }
}

}  // namespace copse::kernels::cuda::hopper
