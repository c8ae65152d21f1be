#pragma once
// How the warps of a block add their parts of a sum, how blocks wait for each other, and how the
// last block at a tile knows that it is the last.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/moe_experts/moe_warps.h"

namespace copse::kernels::cuda {

// A barrier of the warps that multiply; the one that fetches takes no part.
__device__ inline void multipliers_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(multiply_threads) : "memory");
}

// Sums of which every warp has a part; they meet in shared memory, several at a time. A sum is
// kValues numbers a lane.
class TileSums {
 public:
  static constexpr int half_floats = 8 * multiply_threads;
  static constexpr int bytes = 2 * half_floats * 4;

  // `memory` [bytes] is shared.
  __device__ TileSums(float* memory, int warp, int lane)
      : memory_(memory), warp_(warp), lane_(lane) {}

  __device__ bool empty() const { return waiting_ == 0; }
  // done(index, total), on the lanes of one warp, for every sum that was added since the last time,
  // index counting from there; by the time of a call with `last`. A total is in the order of warps.
  // Memory is used in turn: who writes a half again has passed the barrier at which its last reader
  // arrived after reading.
  template <int kValues, class Done>
  __device__ void add(const float (&part)[kValues], bool last, const Done& done) {
    constexpr int together = kValues == 4 ? 2 : 4;
    float* half = memory_ + (turn_ & 1) * half_floats;
    float* own = half + (waiting_ * multiply_warps + warp_) * 32 * kValues + lane_ * kValues;
    store(own, part);
    ++waiting_;
    if (waiting_ < together && !last) return;
    multipliers_barrier();
    const int mine = warp_ - reader_;
    if (mine >= 0 && mine < waiting_) {
      const float* parts = half + mine * multiply_warps * 32 * kValues + lane_ * kValues;
      float total[kValues];
      load(parts, total);
#pragma unroll
      for (int w = 1; w < multiply_warps; ++w) {
        float next[kValues];
        load(parts + w * 32 * kValues, next);
#pragma unroll
        for (int i = 0; i < kValues; ++i) total[i] += next[i];
      }
      done(mine, total);
    }
    reader_ = reader_ + together <= multiply_warps - together ? reader_ + together : 0;
    ++turn_;
    waiting_ = 0;
  }

 private:
  template <int kValues>
  struct alignas(4 * kValues) Pack {
    float values[kValues];
  };
  template <int kValues>
  __device__ static void store(float* to, const float (&from)[kValues]) {
    Pack<kValues> pack;
#pragma unroll
    for (int i = 0; i < kValues; ++i) pack.values[i] = from[i];
    *reinterpret_cast<Pack<kValues>*>(to) = pack;
  }
  template <int kValues>
  __device__ static void load(const float* from, float (&to)[kValues]) {
    const Pack<kValues> pack = *reinterpret_cast<const Pack<kValues>*>(from);
#pragma unroll
    for (int i = 0; i < kValues; ++i) to[i] = pack.values[i];
  }

  float* memory_;
  int warp_;
  int lane_;
  int turn_ = 0;
  int reader_ = 0;  // the warp that adds the first
  int waiting_ = 0;
};

// Waits until all `blocks` blocks, which must be resident together, are here; what they wrote
// before is then seen by all. The word's upper bit flips with every use; it is zero before the
// first.
__device__ inline void grid_barrier(unsigned* word, unsigned blocks) {
  constexpr unsigned flag = 0x80000000u;
  multipliers_barrier();
  if (threadIdx.x == 0) {
    const unsigned add = blockIdx.x == 0 ? flag - (blocks - 1) : 1u;
    unsigned before;
    unsigned now;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(add)
                 : "memory");
    do {
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    } while (((now ^ before) & flag) == 0);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  multipliers_barrier();
}

// Adds `units` to what was done of something that has `all`; whether it is now done. Whoever sees
// that sees the writes of all others, and the count is zero again.
__device__ inline bool count_units(int* count, int units, int all) {
  if (units == all) return true;
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(count), "r"(units)
               : "memory");
  const bool last = before + units == all;
  if (last) *count = 0;
  return last;
}

}  // namespace copse::kernels::cuda
