#pragma once
// Order of candidates as one 64-bit key, and helpers of a block that looks for the k best.
#include <cstdint>

#include "base/limits.h"
#include "base/types.h"
#include "kernels/topk_logprob/topk_shape.h"

namespace copse::kernels::cuda {

// Larger key: larger logit, then lower id. 0 for what is no candidate: -infinity and NaN.
using TopkKey = std::uint64_t;

// Grows with the value, zeros of both signs are one; 0 for -infinity and NaN.
__device__ inline std::uint32_t topk_order(float value) {
  if (!(value > -__int_as_float(0x7f800000))) return 0;
  const std::uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of_topk_order(std::uint32_t order) {
  return __uint_as_float((order >> 31) != 0 ? order & 0x7FFFFFFFu : ~order);
}
__device__ inline TopkKey topk_key(std::uint32_t order, std::uint32_t token) {
  return order == 0 ? 0 : (static_cast<TopkKey>(order) << 32) | ~token;
}
__device__ inline TopkWord topk_word(TopkKey key) {
  if (key == 0) return {-__int_as_float(0x7f800000), 0};
  return {value_of_topk_order(static_cast<std::uint32_t>(key >> 32)),
          ~static_cast<std::uint32_t>(key)};
}
__device__ inline TopkKey topk_key(const TopkWord& word) {
  return topk_key(topk_order(word.value), word.bits);
}

// Finds the exact border of the k best among a block's values where the cheap threshold let too
// many through: equal logits by the thousand. Slow, and right for any input.
struct TopkBorder {
  std::uint32_t order = 0;  // of the k-th best
  int index_end = 0;        // of those with this order, the ones below it are in
};

// count(predicate): how many values of the block it holds for, the same on every thread.
template <class Count>
__device__ TopkBorder find_border(int k, const Count& count) {
  TopkBorder border;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    const std::uint32_t probe = border.order | bit;
    if (count([=](std::uint32_t order, int) { return order >= probe; }) >= k) border.order = probe;
  }
  const std::uint32_t equal = border.order;
  const int missing = k - count([=](std::uint32_t order, int) { return order > equal; });
  for (int bit = limits::vocabulary; bit != 0; bit >>= 1) {
    const int probe = border.index_end | bit;
    const int ties =
        count([=](std::uint32_t order, int index) { return order == equal && index < probe; });
    if (ties <= missing) border.index_end = probe;
  }
  return border;
}

}  // namespace copse::kernels::cuda
