#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample/sample_cpu.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "kernels/common/lanes-inl.h"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_rows.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

using WordTag = hn::Rebind<std::uint32_t, FloatTag>;
using Words = hn::Vec<WordTag>;

// High halves of the products of all lanes with one multiplier.
HWY_INLINE Words multiply_high(Words a, std::uint32_t multiplier) {
#if HWY_TARGET == HWY_SCALAR
  const auto product = static_cast<std::uint64_t>(hn::GetLane(a)) * multiplier;
  return hn::Set(WordTag(), static_cast<std::uint32_t>(product >> 32));
#else
  const WordTag d;
  const hn::RepartitionToWide<WordTag> wide;
  const Words m = hn::Set(d, multiplier);
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), m);
  return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

// philox4x32_10 of base/random.h over counters (position, tokens, 0); the first word of each.
HWY_INLINE Words noise_words(std::uint64_t position, Words tokens, std::uint32_t key0,
                             std::uint32_t key1) {
  const WordTag d;
  Words c0 = hn::Set(d, static_cast<std::uint32_t>(position));
  Words c1 = hn::Set(d, static_cast<std::uint32_t>(position >> 32));
  Words c2 = tokens;
  Words c3 = hn::Zero(d);
  _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round) {
    const Words high0 = multiply_high(c0, 0xD2511F53u);
    const Words low0 = hn::Mul(c0, hn::Set(d, 0xD2511F53u));
    const Words high2 = multiply_high(c2, 0xCD9E8D57u);
    const Words low2 = hn::Mul(c2, hn::Set(d, 0xCD9E8D57u));
    c0 = hn::Xor(hn::Xor(high2, c1), hn::Set(d, key0));
    c1 = low2;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c0;
}

// At least the noise of each word. g = -log(-log1p(-v)) <= -log(v); v >= 2^-31 * (r >> 1); and
// log2 of a float is at least its bits read as fixed point, exponent before fraction.
HWY_INLINE Vector noise_bound(Words words) {
  const FloatTag d;
  const hn::Rebind<std::int32_t, FloatTag> di;
  const Vector half = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<1>(words)));
  const Vector bits = hn::ConvertTo(d, hn::BitCast(di, half));
  const Vector log2_at_least = hn::Mul(bits, hn::Set(d, 0x1p-23f));
  const Vector ln2 = hn::Set(d, 0.6931472f);
  return hn::Add(hn::Mul(hn::Sub(hn::Set(d, 158.0f), log2_at_least), ln2), hn::Set(d, 1e-3f));
}

struct RowMaximum {
  float value = -std::numeric_limits<float>::infinity();
  int index = 0;  // the first of equals
  bool finite = true;
};

RowMaximum row_maximum(const float* logits, int count) {
  const FloatTag d;
  RowMaximum result;
  Vector largest = hn::Set(d, result.value);
  Vector odd = hn::Zero(d);  // x - x is 0 for finite x, else NaN
  int i = 0;
  for (; i + vector_lanes <= count; i += vector_lanes) {
    const Vector x = hn::LoadU(d, logits + i);
    odd = hn::Add(odd, hn::Sub(x, x));
    largest = hn::Max(largest, x);
  }
  float values[vector_lanes];
  hn::StoreU(largest, d, values);
  result.finite = hn::AllTrue(d, hn::Eq(odd, hn::Zero(d)));
  for (const float value : values) result.value = std::max(result.value, value);
  for (; i < count; ++i) {
    result.finite = result.finite && std::isfinite(logits[i]);
    result.value = std::max(result.value, logits[i]);
  }
  while (result.index + 1 < count && logits[result.index] != result.value) ++result.index;
  return result;
}

SampleChoice draw(const float* logits, int count, int vocabulary_begin, const SampleRow& row) {
  const RowMaximum top = row_maximum(logits, count);
  if (!top.finite) return {0, sample_not_finite};
  if (count == 0) return {};
  const TokenId top_token = vocabulary_begin + top.index;
  if (row.greedy()) return {top.value, top_token};
  // The largest logit with its own noise is a score to beat; few tokens can.
  SampleChoice best{
      top.value / row.temperature +
          gumbel_noise(row.seed, row.choice, row.position, static_cast<std::uint32_t>(top_token)),
      top_token};
  const FloatTag d;
  const WordTag dw;
  const Vector temperature = hn::Set(d, row.temperature);
  const auto key0 = static_cast<std::uint32_t>(row.seed);
  const std::uint32_t key1 =
      static_cast<std::uint32_t>(row.seed >> 32) ^ (row.choice * 0x9E3779B9u);
  const Vector most = hn::Set(d, 22.9f);  // above the noise of r = 0
  for (int i = 0; i < count; i += vector_lanes) {
    const int valid = std::min(vector_lanes, count - i);
    const Vector x = valid == vector_lanes ? hn::LoadU(d, logits + i) : [&] {
      float values[vector_lanes];
      for (int j = 0; j < vector_lanes; ++j) values[j] = logits[i + std::min(j, valid - 1)];
      return hn::LoadU(d, values);
    }();
    const Vector scaled = hn::Div(x, temperature);
    // Roundings of the sums below stay inside the slack.
    const Vector least = hn::Set(d, best.score - 1e-6f * (std::abs(best.score) + 32.0f));
    if (hn::AllTrue(d, hn::Lt(hn::Add(scaled, most), least))) continue;
    const Words tokens = hn::Iota(dw, static_cast<std::uint32_t>(vocabulary_begin + i));
    const Words words = noise_words(row.position, tokens, key0, key1);
    const auto can_win = hn::Ge(hn::Add(scaled, noise_bound(words)), least);
    if (hn::AllFalse(d, can_win)) continue;
    float scaled_lanes[vector_lanes];
    std::uint32_t word_lanes[vector_lanes];
    float wins[vector_lanes];
    hn::StoreU(scaled, d, scaled_lanes);
    hn::StoreU(words, dw, word_lanes);
    hn::StoreU(hn::IfThenElseZero(can_win, hn::Set(d, 1.0f)), d, wins);
    for (int j = 0; j < valid; ++j) {
      if (wins[j] == 0) continue;
      const SampleChoice choice{scaled_lanes[j] + gumbel_from_word(word_lanes[j]),
                                vocabulary_begin + i + j};
      if (better_choice(choice, best)) best = choice;
    }
  }
  return best;
}

void place(const float* logits, int count, float temperature, float largest, std::uint32_t* ordered,
           std::uint64_t* masses) {
  float scaled[16];
  float mass[16];
  for (int i = 0; i < count; i += 16) {
    const int valid = std::min(16, count - i);
    const Lanes x = valid == 16 ? load(logits + i) : load_first(logits + i, valid);
    const Lanes value = div(x, broadcast(temperature));
    store(value, scaled);
    store(mul(exp(sub(value, broadcast(largest))), broadcast(sample_mass_unit)), mass);
    for (int j = 0; j < valid; ++j) {
      ordered[i + j] = ordered_bits(scaled[j]);
      masses[i + j] = static_cast<std::uint64_t>(mass[j]);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace copse::kernels {

HWY_EXPORT(draw);
HWY_EXPORT(place);

SampleChoice draw_row(const float* logits, int count, int vocabulary_begin, const SampleRow& row) {
  return HWY_DYNAMIC_DISPATCH(draw)(logits, count, vocabulary_begin, row);
}

void place_row(const float* logits, int count, float temperature, float largest,
               std::uint32_t* ordered, std::uint64_t* masses) {
  HWY_DYNAMIC_DISPATCH(place)(logits, count, temperature, largest, ordered, masses);
}

void sample_local(const SampleLogits& logits, std::span<const SampleRow> rows,
                  std::span<const SampleThreshold> thresholds, std::span<SampleChoice> choices,
                  ThreadPool& threads) {
  CHECK(static_cast<std::size_t>(logits.rows) == rows.size() && choices.size() >= rows.size());
  CHECK(logits.values.size() >= rows.size() * static_cast<std::size_t>(logits.stride));
  threads.parallel_for(0, logits.rows, 2, [&](int first, int last) {
    for (int r = first; r < last; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const float* values = logits.values.data() + static_cast<std::ptrdiff_t>(r) * logits.stride;
      const bool plain = rows[i].filtered() || !rows[i].masked.empty();
      choices[i] =
          plain ? draw_row_plain(values, logits.vocabulary_rows, logits.vocabulary_begin, rows[i],
                                 rows[i].filtered() ? thresholds[i] : SampleThreshold{})
                : draw_row(values, logits.vocabulary_rows, logits.vocabulary_begin, rows[i]);
    }
  });
}

}  // namespace copse::kernels
#endif
