#pragma once
// What reference and fast version share: where leaves begin, and how two of them are joined.
#include <bit>
#include <limits>

#include "kernels/common/exp.h"
#include "kernels/topk_logprob/topk_logprob.h"

namespace copse::kernels {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

struct LeafRange {
  int begin = 0;  // inside the shard
  int end = 0;
};
inline LeafRange leaf_range(const TopkShape& shape, int leaf) {
  const int width = shape.vocabulary_rows / shape.leaves();
  const bool last = leaf + 1 == shape.leaves();
  return {leaf * width, last ? shape.vocabulary_rows : (leaf + 1) * width};
}

inline TopkWord leaf_word(float largest, float sum) {
  return {largest, std::bit_cast<std::uint32_t>(sum)};
}

inline bool better_candidate(const TopkWord& a, const TopkWord& b) {
  return a.value != b.value ? a.value > b.value : a.bits < b.bits;
}

}  // namespace copse::kernels
