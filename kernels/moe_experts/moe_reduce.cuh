#pragma once
// How the warps of a block add their parts of a sum, how blocks wait for each other, and how the
// last block at a tile knows that it is the last.
#include <cuda_runtime.h>

#include <cstdint>

namespace copse::kernels::cuda {

inline constexpr int reduce_warps = 16;
// Tiles that meet between two barriers; there are two buffers of them.
inline constexpr int reduce_tiles_together = 2;
inline constexpr int reduce_bytes = 2 * reduce_tiles_together * reduce_warps * 32 * 16;

// done(j, total) on the lanes of one warp for each tile j, total in the order of warps. `buffer`
// [reduce_bytes] is shared; `turn` counts this block's calls of a pair of tiles and decides the
// buffer. Two buffers suffice: whoever writes one again has passed the barrier at which the reader
// of its last content arrived after reading. `job` spreads the readers over warps.
template <int kTiles, class Done>
__device__ inline void reduce_tiles(float4* buffer, int& turn, int job, int warp, int lane,
                                    const float (&sum)[kTiles][4], const Done& done) {
#pragma unroll
  for (int first = 0; first < kTiles; first += reduce_tiles_together) {
    float4* half = buffer + turn % 2 * (reduce_tiles_together * reduce_warps * 32);
    ++turn;
#pragma unroll
    for (int j = first; j < kTiles && j < first + reduce_tiles_together; ++j) {
      half[((j - first) * reduce_warps + warp) * 32 + lane] =
          make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
    }
    __syncthreads();
#pragma unroll
    for (int j = first; j < kTiles && j < first + reduce_tiles_together; ++j) {
      if (warp != (job + j) % reduce_warps) continue;
      float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < reduce_warps; ++w) {
        const float4 part = half[((j - first) * reduce_warps + w) * 32 + lane];
        total.x += part.x;
        total.y += part.y;
        total.z += part.z;
        total.w += part.w;
      }
      done(j, total);
    }
  }
}

// Waits until all `blocks` blocks, which must be resident together, are here; what they wrote
// before is then seen by all. The word's upper bit flips with every use; it is zero before the
// first.
__device__ inline void grid_barrier(unsigned* word, unsigned blocks) {
  constexpr unsigned flag = 0x80000000u;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned before = atomicAdd(word, blockIdx.x == 0 ? flag - (blocks - 1) : 1u);
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    } while (((now ^ before) & flag) == 0);
    __threadfence();
  }
  __syncthreads();
}

// Adds `units` to what was done of something that has `all`; whether it is now done. Whoever sees
// that sees the writes of all others, and the count is zero again.
__device__ inline bool count_units(int* count, int units, int all) {
  if (units == all) return true;
  __threadfence();
  const bool last = atomicAdd(count, units) + units == all;
  if (last) *count = 0;
  __threadfence();
  return last;
}

}  // namespace copse::kernels::cuda
