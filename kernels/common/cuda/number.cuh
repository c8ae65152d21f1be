#pragma once
// Storage types of kernels, float and Bf16, and their way to and from the float that all arithmetic
// is done in. Of a Bf16 it is base/bf16.h's, a constexpr.
#include <cuda_bf16.h>

#include "base/bf16.h"

namespace copse::kernels::cuda {

static_assert(sizeof(Bf16) == sizeof(__nv_bfloat16));

__device__ inline float to_float(float value) {
  return value;
}

template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 from_float<Bf16>(float value) {
  return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// Sum over the 32 lanes, on every lane, in one order.
__device__ inline float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}
__device__ inline float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

}  // namespace copse::kernels::cuda
