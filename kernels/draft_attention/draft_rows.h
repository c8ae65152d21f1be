#pragma once
// Where draft_attention's keys and values stand, and what a row sees.
#include <algorithm>
#include <cstddef>

#include "base/limits.h"
#include "kernels/common/attend.h"
#include "kernels/draft_attention/draft_attention.h"

namespace copse::kernels {

// Token `position` of a sequence as seen by one key/value head: context, then the block.
struct DraftToken {
  const float* key = nullptr;
  const float* value = nullptr;
};

inline DraftToken draft_token(const DraftAttention& call, int sequence, int position, int kv_head) {
  const DraftContext& context = call.sequences[static_cast<std::size_t>(sequence)];
  std::ptrdiff_t row = 0;
  const bool committed = position < context.length;
  if (committed) {
    row = std::ptrdiff_t{context.pages[position / limits::page_tokens]} * limits::page_tokens +
          position % limits::page_tokens;
  } else {
    row = std::ptrdiff_t{sequence} * call.block + position - context.length;
  }
  const std::ptrdiff_t at = (row * call.kv_heads + kv_head) * call.dim;
  return {(committed ? call.key_pages : call.k) + at, (committed ? call.value_pages : call.v) + at};
}

// First context position that row `row` of the block sees.
inline int first_visible(const DraftAttention& call, int sequence, int row) {
  const int length = call.sequences[static_cast<std::size_t>(sequence)].length;
  if (call.window == 0) return 0;
  return std::clamp(length + row - call.window + 1, 0, length);
}

}  // namespace copse::kernels
