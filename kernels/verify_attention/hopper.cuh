#pragma once
// Instructions of compute capability 9.0a, each in a function: mbarriers, bulk tensor copies,
// warpgroup products. Shared memory addresses are the 32-bit ones of shared_address().
#include <cuda.h>

#include <cstdint>

#include "kernels/verify_attention/verify_portable.cuh"

namespace copse::kernels::cuda::hopper {

// --- mbarriers ---

__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After all barriers are initialised, before bulk copies complete on them.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase wait for this many bytes of bulk copies.
__device__ inline void barrier_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Returns when the phase of this parity has completed.
__device__ inline void barrier_wait(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Of `threads` threads that meet at barrier `id` (1 .. 15).
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The same, and whether any of them gave true.
__device__ inline bool named_barrier_any(int id, int threads, bool value) {
  int any = 0;
  asm volatile(
      "{\n"
      ".reg .pred in, out;\n"
      "setp.ne.s32 in, %3, 0;\n"
      "bar.red.or.pred out, %1, %2, in;\n"
      "selp.s32 %0, 1, 0, out;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(value))
      : "memory");
  return any != 0;
}

// One lane of the warp gets true.
__device__ inline bool elect_one() {
  int elected = 0;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.s32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// Lets the kernel that follows in the stream begin where it was launched to, as far as there is
// room.
__device__ inline void launch_next() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Returns when the kernels before this one have ended and what they wrote can be read.
__device__ inline void wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// --- copies ---

// Copies the map's box at (column, row) into shared memory and counts its bytes at the barrier.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row,
                                std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Orders this thread's ordinary writes to shared memory before what tensor cores read of it.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same of global memory, before or after a bulk copy of other blocks.
__device__ inline void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
// Adds one; who reads the sum with load_acquire sees what the block wrote before.
__device__ inline void add_release(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ inline unsigned load_acquire(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
// Copies `bytes` (a multiple of 16) into shared memory and counts them at the barrier.
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Four 8 x 8 matrices of 16-bit values into rows of 16 bytes, transposed; lane i gives the address
// of row i % 8 of matrix i / 8.
__device__ inline void store_transposed(std::uint32_t row, std::uint32_t a, std::uint32_t b,
                                        std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_transposed(std::uint32_t row, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a),
               "r"(b)
               : "memory");
}
// An 8 x 8 matrix of 16-bit values, transposed among the lanes of a warp.
__device__ inline std::uint32_t transpose(std::uint32_t a) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(a));
  return result;
}
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// --- warpgroup products ---

template <int registers>
__device__ inline void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

__device__ inline void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// A matrix in shared memory whose rows are 128 bytes, swizzled by 128 bytes as a bulk tensor copy
// writes them; groups of 8 rows follow one another. `address` may point into a row (a step along
// it) or to a later row (a multiple of 8).
__device__ inline std::uint32_t matrix_descriptor(std::uint32_t address) {
  constexpr std::uint32_t unused = 1u << 16;
  return unused | ((address & 0x3ffff) >> 4);
}
// The upper half, the same for all: 128 bytes swizzled, 1024 bytes a group.
inline constexpr std::uint32_t matrix_layout = 1u << 30 | 1024 >> 4;
__device__ inline std::uint64_t whole_descriptor(std::uint32_t low) {
  return std::uint64_t{matrix_layout} << 32 | low;
}

// d [64][n] (+)= A [64][16] * B [16][n], bf16 in, float32 out; accumulate == 0 overwrites. B's rows
// in shared memory are its columns (n), so k runs along them. transposed_a == 0: A's rows are rows
// (k along them); 1: they are its columns (64 values of m along them).

#define COPSE_LIST_8 "%0, %1, %2, %3"
#define COPSE_LIST_16 COPSE_LIST_8 ", %4, %5, %6, %7"
#define COPSE_LIST_24 COPSE_LIST_16 ", %8, %9, %10, %11"
#define COPSE_LIST_32 COPSE_LIST_24 ", %12, %13, %14, %15"
#define COPSE_LIST_40 COPSE_LIST_32 ", %16, %17, %18, %19"
#define COPSE_LIST_48 COPSE_LIST_40 ", %20, %21, %22, %23"
#define COPSE_LIST_56 COPSE_LIST_48 ", %24, %25, %26, %27"
#define COPSE_LIST_64 COPSE_LIST_56 ", %28, %29, %30, %31"
#define COPSE_LIST_72 COPSE_LIST_64 ", %32, %33, %34, %35"
#define COPSE_LIST_80 COPSE_LIST_72 ", %36, %37, %38, %39"
#define COPSE_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define COPSE_OUT_8 COPSE_FOUR(0)
#define COPSE_OUT_16 COPSE_OUT_8, COPSE_FOUR(4)
#define COPSE_OUT_24 COPSE_OUT_16, COPSE_FOUR(8)
#define COPSE_OUT_32 COPSE_OUT_24, COPSE_FOUR(12)
#define COPSE_OUT_40 COPSE_OUT_32, COPSE_FOUR(16)
#define COPSE_OUT_48 COPSE_OUT_40, COPSE_FOUR(20)
#define COPSE_OUT_56 COPSE_OUT_48, COPSE_FOUR(24)
#define COPSE_OUT_64 COPSE_OUT_56, COPSE_FOUR(28)
#define COPSE_OUT_72 COPSE_OUT_64, COPSE_FOUR(32)
#define COPSE_OUT_80 COPSE_OUT_72, COPSE_FOUR(36)
// The operands after the n / 2 accumulators: A, B, accumulate, transposed_a.
#define COPSE_PRODUCT(n, a_index, b_index, keep_index, transposed_index)                 \
  template <int transposed_a>                                                            \
  __device__ inline void product_##n(float(&d)[n / 2], std::uint64_t a, std::uint64_t b, \
                                     int accumulate) {                                   \
    asm volatile(                                                                        \
        "{\n"                                                                            \
        ".reg .pred keep;\n"                                                             \
        "setp.ne.b32 keep, %" #keep_index                                                \
        ", 0;\n"                                                                         \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" COPSE_LIST_##n      \
        "}, %" #a_index ", %" #b_index ", keep, 1, 1, %" #transposed_index               \
        ", 0;\n"                                                                         \
        "}\n"                                                                            \
        : COPSE_OUT_##n                                                                  \
        : "l"(a), "l"(b), "r"(accumulate), "n"(transposed_a));                           \
  }
COPSE_PRODUCT(8, 4, 5, 6, 7)
COPSE_PRODUCT(16, 8, 9, 10, 11)
COPSE_PRODUCT(24, 12, 13, 14, 15)
COPSE_PRODUCT(32, 16, 17, 18, 19)
COPSE_PRODUCT(40, 20, 21, 22, 23)
COPSE_PRODUCT(48, 24, 25, 26, 27)
COPSE_PRODUCT(56, 28, 29, 30, 31)
COPSE_PRODUCT(64, 32, 33, 34, 35)
COPSE_PRODUCT(72, 36, 37, 38, 39)
COPSE_PRODUCT(80, 40, 41, 42, 43)

template <int n, int transposed_a>
__device__ inline void product(float (&d)[n / 2], std::uint32_t a_low, std::uint32_t b_low,
                               int accumulate) {
  const std::uint64_t a = whole_descriptor(a_low);
  const std::uint64_t b = whole_descriptor(b_low);
  if constexpr (n == 8) product_8<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 16) product_16<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 24) product_24<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 32) product_32<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 40) product_40<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 48) product_48<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 56) product_56<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 64) product_64<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 72) product_72<transposed_a>(d, a, b, accumulate);
  if constexpr (n == 80) product_80<transposed_a>(d, a, b, accumulate);
}

}  // namespace copse::kernels::cuda::hopper
