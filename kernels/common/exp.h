#pragma once
// The exponential of every kernel, as a fixed list of float32 operations, so that softmax and SiLU
// give the same bits with plain loops and with vectors of any width (kernels/common/lanes-inl.h has
// the same list for vectors), on a GPU as well: no sum below follows a product, so none is fused
// that is not written so.
//
// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2 with ln 2 in two parts (Cody, Waite
// 1980), exp(r) by the degree 7 polynomial of Cephes' expf (Moshier). Largest error seen against
// float64: 1.1 units in the last place. Below exp_underflow: 0 (a softmax weight or sigmoid that
// small adds nothing). Above exp_overflow: infinity. NaN stays NaN.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.h"

namespace copse::kernels {

namespace exp_constants {
inline constexpr float log2_e = 1.44269504088896341f;
inline constexpr float minus_ln2_high = -0.693359375f;
inline constexpr float minus_ln2_low = 2.12194440e-4f;
inline constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float coefficients[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                          4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}  // namespace exp_constants

inline constexpr float exp_underflow = -86.5f;
inline constexpr float exp_overflow = 88.72f;

COPSE_HOST_DEVICE inline float exp_fixed(float x) {
  using namespace exp_constants;
  if (x < exp_underflow) return 0.0f;
  if (x > exp_overflow) return std::numeric_limits<float>::infinity();
  if (x != x) return x;
  const float n = std::fma(x, log2_e, round_magic) - round_magic;
  const float r = std::fma(n, minus_ln2_low, std::fma(n, minus_ln2_high, x));
  // Copied, since a GPU's code sees constants of a namespace one by one, but not as arrays.
  constexpr float c[6] = {coefficients[0], coefficients[1], coefficients[2],
                          coefficients[3], coefficients[4], coefficients[5]};
  float p = c[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, c[i]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  // 2^(n - 1), then doubled: 2^n itself is not a float for n = 128.
  const auto scale = std::bit_cast<float>((static_cast<std::int32_t>(n) + 126) << 23);
  return y * scale * 2.0f;
}

}  // namespace copse::kernels
