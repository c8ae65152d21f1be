#pragma once
// Which tokens a row of verify_attention sees, in order of absolute position.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "kernels/verify_attention/verify_attention.h"

namespace copse::kernels {

inline int latent_width(const VerifyAttention& call) {
  return call.latent + call.rope;
}

// The latent row of the prefix token at `position`.
inline const float* prefix_row(const VerifyAttention& call, const VerifySequence& sequence,
                               int position) {
  const std::ptrdiff_t page = sequence.pages[position / limits::page_tokens];
  const std::ptrdiff_t row = page * limits::page_tokens + position % limits::page_tokens;
  return call.pages + row * latent_width(call);
}

// The latent row of the sequence's own row `node`.
inline const float* scratch_row(const VerifyAttention& call, const VerifySequence& sequence,
                                int node) {
  const std::ptrdiff_t row = std::ptrdiff_t{sequence.slot} * call.scratch_rows + node;
  return call.scratch + row * latent_width(call);
}

// The first row of the sequence at or after `node` that row `row` sees; > row when there is none.
inline int next_visible(const VerifySequence& sequence, int row, int node) {
  if (sequence.ancestors == nullptr) return node;
  const std::uint64_t* words =
      sequence.ancestors + static_cast<std::ptrdiff_t>(row) * sequence.mask_words;
  for (; node <= row; node = (node / 64 + 1) * 64) {
    const std::uint64_t rest = words[node / 64] >> (node % 64);
    if (rest != 0) return node + std::countr_zero(rest);
  }
  return node;
}

// How many of the sequence's own rows `row` sees, itself included.
inline int visible_rows(const VerifySequence& sequence, int row) {
  if (sequence.ancestors == nullptr) return row + 1;
  int count = 0;
  for (int node = next_visible(sequence, row, 0); node <= row;
       node = next_visible(sequence, row, node + 1)) {
    ++count;
  }
  return count;
}

}  // namespace copse::kernels
