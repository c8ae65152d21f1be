#pragma once
// A block of weights times up to 8 * kTiles rows of activations, on the tensor cores: weights are
// the 16 rows of the instruction, activations its 8 columns.
//
// The order of inputs within an instruction is free as long as both sides agree: lane 4 * g + t
// holds rows g and g + 8 of the weights and row g of the activations, each at the eight
// neighbouring inputs 8 * t ... of a group of 32, which two instructions cover. So every operand is
// one 16-byte load, and a group of 32 is one scale of INT4.
#include <cuda_bf16.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/moe_experts/expert_layout.h"

namespace copse::kernels::cuda {

inline constexpr int group_inputs = 32;

template <ExpertCodec kCodec>
constexpr int block_groups() {
  return expert_layout::block_inputs(kCodec) / group_inputs;
}

// Eight neighbouring inputs of weight rows g and g + 8, two bf16 a register.
struct WeightPair {
  std::uint32_t low[4];
  std::uint32_t high[4];
};

__device__ inline void multiply_add(float (&sum)[4], std::uint32_t a0, std::uint32_t a1,
                                    std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void multiply_group(float (&sum)[4], const WeightPair& w, const uint4& x) {
  multiply_add(sum, w.low[0], w.high[0], w.low[1], w.high[1], x.x, x.y);
  multiply_add(sum, w.low[2], w.high[2], w.low[3], w.high[3], x.z, x.w);
}

__device__ inline std::uint32_t bf16x2_bits(__nv_bfloat162 value) {
  return *reinterpret_cast<const std::uint32_t*>(&value);
}
__device__ inline __nv_bfloat162 as_bf16x2(std::uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// Two's complement with its sign bit turned is the value + 8; in the mantissa of 128 that is the
// value + 136, and less that is the value. Exact.
__device__ inline void widen_int4(std::uint32_t word, std::uint32_t (&out)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // (word & nibbles) ^ magic: with two immediates the compiler takes two instructions.
    std::uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
        : "=r"(bits)
        : "r"(word >> (4 * i)), "n"(0x000f000f), "r"(0x43084308u));
    out[i] = bf16x2_bits(__hsub2(as_bf16x2(bits), as_bf16x2(0x43084308u)));
  }
}

// e4m3's exponent and mantissa in bf16's places are the value times 2^-120. Exact, subnormals too.
__device__ inline std::uint32_t widen_fp8_pair(std::uint32_t upper_bytes) {
  const std::uint32_t bits = (upper_bytes >> 4 & 0x07f007f0u) | (upper_bytes & 0x80008000u);
  return bf16x2_bits(__hmul2(as_bf16x2(bits), as_bf16x2(0x7b807b80u)));
}

__device__ inline uint4 load16(const std::byte* memory) {
  return *reinterpret_cast<const uint4*>(memory);
}

__device__ inline void scale_add(float (&sum)[4], const float (&part)[4], float low, float high) {
  sum[0] = fmaf(low, part[0], sum[0]);
  sum[1] = fmaf(low, part[1], sum[1]);
  sum[2] = fmaf(high, part[2], sum[2]);
  sum[3] = fmaf(high, part[3], sum[3]);
}

// Scales of INT4 rows g and g + 8 for both groups of a block: [group][row / 8].
template <ExpertCodec kCodec>
__device__ inline void int4_scales(const std::byte* block, int lane, float (&scales)[2][2]) {
  const std::byte* from = block + expert_layout::scale_offset(kCodec, lane / 4, 0);
  if constexpr (kCodec == ExpertCodec::int4_group) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    scales[0][0] = __uint_as_float(bits.x << 16);
    scales[0][1] = __uint_as_float(bits.x & 0xffff0000u);
    scales[1][0] = __uint_as_float(bits.y << 16);
    scales[1][1] = __uint_as_float(bits.y & 0xffff0000u);
  } else {
    const float4 all = *reinterpret_cast<const float4*>(from);
    scales[0][0] = all.x;
    scales[0][1] = all.y;
    scales[1][0] = all.z;
    scales[1][1] = all.w;
  }
}

// sum[tile] += block . x, where x[group][tile] are this lane's eight activations.
template <ExpertCodec kCodec, int kTiles>
__device__ inline void multiply_block(const std::byte* block, int lane,
                                      const uint4 (&x)[block_groups<kCodec>()][kTiles],
                                      float (&sum)[kTiles][4]) {
  if constexpr (kCodec == ExpertCodec::bf16) {
    const uint4 low = load16(block + lane * 16);
    const uint4 high = load16(block + 512 + lane * 16);
    const WeightPair w = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) multiply_group(sum[j], w, x[0][j]);
  } else if constexpr (kCodec == ExpertCodec::fp8_block) {
    float part[kTiles][4] = {};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const uint4 words = load16(block + g * 512 + lane * 16);
      const WeightPair w = {{widen_fp8_pair(words.x), widen_fp8_pair(words.x << 8),
                             widen_fp8_pair(words.y), widen_fp8_pair(words.y << 8)},
                            {widen_fp8_pair(words.z), widen_fp8_pair(words.z << 8),
                             widen_fp8_pair(words.w), widen_fp8_pair(words.w << 8)}};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) multiply_group(part[j], w, x[g][j]);
    }
    const float2 scales = *reinterpret_cast<const float2*>(block + 2048);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) scale_add(sum[j], part[j], scales.x, scales.y);
  } else {
    const uint4 words = load16(block + lane * 16);
    float scales[2][2];
    int4_scales<kCodec>(block, lane, scales);
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      WeightPair w;
      widen_int4(g == 0 ? words.x : words.z, w.low);
      widen_int4(g == 0 ? words.y : words.w, w.high);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float part[4] = {};
        multiply_group(part, w, x[g][j]);
        scale_add(sum[j], part, scales[g][0], scales[g][1]);
      }
    }
  }
}

// Rows of activations as one lane sees them: row g of each tile of eight.
template <int kTiles>
struct RowPointers {
  const Bf16* row[kTiles];
  int inputs[kTiles];  // 0 where there is no such row

  // The octets of this lane at inputs first, first + 32, ..., all multiples of eight.
  template <int kGroups>
  __device__ void load(int first, int lane, uint4 (&x)[kGroups][kTiles]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int input = first + g * group_inputs + lane % 4 * 8;
        x[g][j] = make_uint4(0, 0, 0, 0);
        if (input < inputs[j]) x[g][j] = *reinterpret_cast<const uint4*>(row[j] + input);
      }
    }
  }
};

}  // namespace copse::kernels::cuda
