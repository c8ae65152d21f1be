#pragma once
// Octets of packed weights and of activations as floats, for the portable kernels.
#include <cuda_fp8.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/moe_experts/expert_layout.h"

namespace copse::kernels::cuda {

// Inverse of the order within an octet that expert_layout.h states.
template <ExpertCodec kCodec>
__device__ inline void decode_octet(const std::byte* block, int row, int index, float (&out)[8]) {
  using namespace expert_layout;
  const auto* from =
      reinterpret_cast<const std::uint32_t*>(block + octet_offset(kCodec, row, index));
  if constexpr (kCodec == ExpertCodec::f32) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = __uint_as_float(from[i]);
  } else if constexpr (kCodec == ExpertCodec::bf16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = __uint_as_float(i % 2 == 0 ? from[i / 2] << 16 : from[i / 2] & 0xffff0000u);
    }
  } else if constexpr (kCodec == ExpertCodec::fp8_block) {
    const float scale = *reinterpret_cast<const float*>(block + scale_offset(kCodec, row, index));
    constexpr int place[4] = {1, 3, 0, 2};  // byte of the i-th value of a word
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      __nv_fp8_e4m3 value;
      value.__x = static_cast<__nv_fp8_storage_t>(from[i / 4] >> (8 * place[i % 4]) & 0xffu);
      out[i] = static_cast<float>(value) * scale;
    }
  } else {
    const std::byte* scale_at = block + scale_offset(kCodec, row, index);
    const float scale = kCodec == ExpertCodec::int4_group
                            ? to_float(*reinterpret_cast<const Bf16*>(scale_at))
                            : *reinterpret_cast<const float*>(scale_at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t nibble = from[0] >> (i % 2 * 16 + i / 2 * 4) & 15u;
      out[i] = static_cast<float>(static_cast<int>(nibble ^ 8u) - 8) * scale;
    }
  }
}

// values[first .. first + 7], zero from `count` on.
template <class T>
__device__ inline void load_octet(const T* values, int first, int count, float (&out)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = first + i < count ? to_float(values[first + i]) : 0.0f;
}

// sums[row] += the tile's row . x, over the octets of this lane; the warp's lanes cover `inputs`.
template <ExpertCodec kCodec, class T>
__device__ inline void tile_dot(const std::byte* tile, const T* x, int inputs, int lane,
                                float (&sums)[16]) {
  constexpr int block_octets = expert_layout::block_inputs(kCodec) / 8;
  for (int octet = lane; octet * 8 < inputs; octet += 32) {
    const std::byte* block =
        tile + static_cast<std::size_t>(octet / block_octets) * expert_layout::block_bytes(kCodec);
    float values[8];
    load_octet(x, octet * 8, inputs, values);
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      float weights[8];
      decode_octet<kCodec>(block, row, octet % block_octets, weights);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[row] = fmaf(weights[i], values[i], sums[row]);
    }
  }
}

}  // namespace copse::kernels::cuda
