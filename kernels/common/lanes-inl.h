// Sixteen float32 lanes, whatever the vector width: one AVX-512 vector, two of AVX2, sixteen plain
// floats. Every operation acts on each lane alone, or joins lanes in the one order of tree_sum.h,
// so all targets give the same bits. Included once per target (Highway's foreach_target).
#if defined(COPSE_KERNELS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPSE_KERNELS_LANES_INL_H
#undef COPSE_KERNELS_LANES_INL_H
#else
#define COPSE_KERNELS_LANES_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/bf16.h"
#include "kernels/common/exp.h"
#include "kernels/common/tree_sum.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<FloatTag>;
constexpr int vector_lanes = static_cast<int>(hn::MaxLanes(FloatTag()));
constexpr int parts = 16 / vector_lanes;

struct Lanes {
  Vector part[parts];
};

#define COPSE_LANES_EACH(expression)                        \
  Lanes result;                                             \
  _Pragma("GCC unroll 2") for (int i = 0; i < parts; ++i) { \
    result.part[i] = (expression);                          \
  }                                                         \
  return result

HWY_INLINE Vector fuse(Vector a, Vector b, Vector c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  static_assert(vector_lanes == 1);
  return hn::Set(FloatTag(), std::fma(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
#endif
}

HWY_INLINE Lanes broadcast(float value) {
  COPSE_LANES_EACH(hn::Set(FloatTag(), value));
}
HWY_INLINE Lanes zero() {
  COPSE_LANES_EACH(hn::Zero(FloatTag()));
}
HWY_INLINE Lanes load(const float* from) {
  COPSE_LANES_EACH(hn::LoadU(FloatTag(), from + i * vector_lanes));
}
// Lane n from the first (low) or second (high) of the n-th pair of bfloat16.
HWY_INLINE Vector load_words(const Bf16* pairs, int part) {
  const hn::Rebind<std::uint32_t, FloatTag> word;
#if HWY_TARGET == HWY_SCALAR
  std::uint32_t bits;  // plain code may not read one type as another
  std::memcpy(&bits, pairs + 2 * part, sizeof(bits));
  return hn::BitCast(FloatTag(), hn::Set(word, bits));
#else
  const auto* words = reinterpret_cast<const std::uint32_t*>(pairs);
  return hn::BitCast(FloatTag(), hn::LoadU(word, words + part * vector_lanes));
#endif
}
HWY_INLINE Vector low_half(Vector words) {
  const hn::Rebind<std::uint32_t, FloatTag> word;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::BitCast(word, words)));
}
HWY_INLINE Vector high_half(Vector words) {
  const hn::Rebind<std::uint32_t, FloatTag> word;
  return hn::BitCast(FloatTag(), hn::And(hn::BitCast(word, words), hn::Set(word, 0xffff0000u)));
}
HWY_INLINE Lanes load_low_halves(const Bf16* pairs) {
  COPSE_LANES_EACH(low_half(load_words(pairs, i)));
}
HWY_INLINE Lanes load_high_halves(const Bf16* pairs) {
  COPSE_LANES_EACH(high_half(load_words(pairs, i)));
}
HWY_INLINE void store(Lanes value, float* to) {
  _Pragma("GCC unroll 2") for (int i = 0; i < parts; ++i) {
    hn::StoreU(value.part[i], FloatTag(), to + i * vector_lanes);
  }
}
// The first `count` lanes; the others read as zero and are not written.
HWY_INLINE Lanes load_first(const float* from, int count) {
  float values[16] = {};
  std::memcpy(values, from, static_cast<std::size_t>(count) * sizeof(float));
  return load(values);
}
HWY_INLINE void store_first(Lanes value, float* to, int count) {
  float values[16];
  store(value, values);
  std::memcpy(to, values, static_cast<std::size_t>(count) * sizeof(float));
}

HWY_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  COPSE_LANES_EACH(fuse(a.part[i], b.part[i], c.part[i]));
}
HWY_INLINE Lanes add(Lanes a, Lanes b) {
  COPSE_LANES_EACH(hn::Add(a.part[i], b.part[i]));
}
HWY_INLINE Lanes sub(Lanes a, Lanes b) {
  COPSE_LANES_EACH(hn::Sub(a.part[i], b.part[i]));
}
HWY_INLINE Lanes mul(Lanes a, Lanes b) {
  COPSE_LANES_EACH(hn::Mul(a.part[i], b.part[i]));
}
HWY_INLINE Lanes div(Lanes a, Lanes b) {
  COPSE_LANES_EACH(hn::Div(a.part[i], b.part[i]));
}
HWY_INLINE Lanes max(Lanes a, Lanes b) {
  COPSE_LANES_EACH(hn::Max(a.part[i], b.part[i]));
}

// exp_fixed of exp.h, operation by operation.
HWY_INLINE Vector exp_vector(Vector x) {
  using namespace exp_constants;
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> di;
  const Vector magic = hn::Set(d, round_magic);
  const Vector low = hn::Set(d, exp_underflow);
  const Vector high = hn::Set(d, exp_overflow);
  const auto under = hn::Lt(x, low);
  const auto over = hn::Gt(x, high);
  const auto nan = hn::Ne(x, x);
  const Vector safe = hn::IfThenZeroElse(hn::Or(hn::Or(under, over), nan), x);
  const Vector n = hn::Sub(fuse(safe, hn::Set(d, log2_e), magic), magic);
  const Vector r = fuse(n, hn::Set(d, minus_ln2_low), fuse(n, hn::Set(d, minus_ln2_high), safe));
  Vector p = hn::Set(d, coefficients[0]);
  _Pragma("GCC unroll 5") for (int i = 1; i < 6; ++i) {
    p = fuse(p, r, hn::Set(d, coefficients[i]));
  }
  const Vector y = hn::Add(fuse(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto scale =
      hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 126))));
  Vector result = hn::Mul(hn::Mul(y, scale), hn::Set(d, 2.0f));
  result = hn::IfThenZeroElse(under, result);
  result = hn::IfThenElse(over, hn::Set(d, std::numeric_limits<float>::infinity()), result);
  return hn::IfThenElse(nan, x, result);
}
HWY_INLINE Lanes exp(Lanes x) {
  COPSE_LANES_EACH(exp_vector(x.part[i]));
}

// silu(gate) * up = gate / (1 + exp(-gate)) * up.
HWY_INLINE Lanes swiglu_lanes(Lanes gate, Lanes up) {
  const Lanes denominator = add(broadcast(1.0f), exp(sub(zero(), gate)));
  return mul(div(gate, denominator), up);
}

// The 16 lanes of one reduction, in the order of tree_sum.h.
HWY_INLINE float tree_sum(Lanes value) {
  float partials[16];
  store(value, partials);
  return tree_sum16(partials);
}

// Sixteen reductions at once: lane n of the result is tree_sum(sums[n]). The shuffles halve the
// partials of each sum step by step and pack the sums closer, so the additions pair as in tree_sum.
HWY_INLINE Lanes tree_sums(const Lanes (&sums)[16]) {
#if HWY_TARGET == HWY_AVX3
  __m512 quad[4];
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
    // Sums i, 4 + i, 8 + i, 12 + i: after two steps one 128-bit block of four partials each.
    __m512 eighth[2];
    _Pragma("GCC unroll 2") for (int h = 0; h < 2; ++h) {
      const __m512 a = sums[8 * h + i].part[0].raw;
      const __m512 b = sums[8 * h + 4 + i].part[0].raw;
      eighth[h] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    quad[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eighth[0], eighth[1], 0x88),
                            _mm512_shuffle_f32x4(eighth[0], eighth[1], 0xdd));
  }
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(quad[0], quad[1], 0x44),
                                  _mm512_shuffle_ps(quad[0], quad[1], 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(quad[2], quad[3], 0x44),
                                  _mm512_shuffle_ps(quad[2], quad[3], 0xee));
  Lanes result;
  result.part[0].raw =
      _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
  return result;
#elif HWY_TARGET == HWY_AVX2
  Lanes result;
  _Pragma("GCC unroll 2") for (int h = 0; h < 2; ++h) {
    __m256 quad[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
      const Lanes& p = sums[8 * h + i];
      const Lanes& q = sums[8 * h + 4 + i];
      const __m256 a = _mm256_add_ps(p.part[0].raw, p.part[1].raw);
      const __m256 b = _mm256_add_ps(q.part[0].raw, q.part[1].raw);
      quad[i] =
          _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    const __m256 ab = _mm256_add_ps(_mm256_shuffle_ps(quad[0], quad[1], 0x44),
                                    _mm256_shuffle_ps(quad[0], quad[1], 0xee));
    const __m256 cd = _mm256_add_ps(_mm256_shuffle_ps(quad[2], quad[3], 0x44),
                                    _mm256_shuffle_ps(quad[2], quad[3], 0xee));
    result.part[h].raw =
        _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd));
  }
  return result;
#else
  float values[16];
  for (int n = 0; n < 16; ++n) values[n] = tree_sum(sums[n]);
  return load(values);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#endif  // COPSE_KERNELS_LANES_INL_H
