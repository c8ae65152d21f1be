#pragma once
// Vectorised inner loops of sampling, for one row of a shard.
#include <cstdint>

#include "kernels/sample/sample.h"

namespace copse::kernels {

inline bool is_masked(const SampleRow& row, TokenId token) {
  for (const TokenId masked : row.masked) {
    if (masked == token) return true;
  }
  return false;
}

// ordered_bits and sample_mass of every scaled logit (sample_place.h).
void place_row(const float* logits, int count, float temperature, float largest,
               std::uint32_t* ordered, std::uint64_t* masses);

// The best choice of a row without mask and filter.
SampleChoice draw_row(const float* logits, int count, int vocabulary_begin, const SampleRow& row);
// With them; also the reference of draw_row (plain loops, noise of every token).
SampleChoice draw_row_plain(const float* logits, int count, int vocabulary_begin,
                            const SampleRow& row, const SampleThreshold& threshold);

}  // namespace copse::kernels
