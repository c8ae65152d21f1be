#pragma once
// Gumbel noise by the fast instructions, to find the few tokens that need the exact noise.
#include <cstdint>

#include "base/noise.h"

namespace copse::kernels::cuda {

// At least |approximate_noise - gumbel_from_word| of any word (sample_noise_cuda_test.cu tries
// all).
inline constexpr float noise_error = 1e-4f;

__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// -log(-log(1 - v)), v = (r + 1/2) / 2^32. 1 - v from the complement of r; its logarithm by the
// series where v is small.
__device__ inline float approximate_noise(std::uint32_t word) {
  constexpr float ln2 = 0.693147181f;
  const float v = fmaf(static_cast<float>(word), 0x1p-32f, 0x1p-33f);
  const float rest = fmaf(static_cast<float>(~word), 0x1p-32f, 0x1p-33f);
  const float series = v * fmaf(v, fmaf(v, 1.0f / 3, 0.5f), 1.0f);
  const float inner = v < 0.01f ? series : -ln2 * log2_fast(rest);
  return -ln2 * log2_fast(inner);
}

}  // namespace copse::kernels::cuda
