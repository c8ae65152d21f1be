#include "kernels/draft_attention/draft_rows.h"

namespace copse::kernels::ref {

void draft_attention(const DraftAttention& call) {
  const AttendShape shape = {call.dim, call.dim, call.scale};
  const int group = call.heads / call.kv_heads;
  for (int s = 0; s < static_cast<int>(call.sequences.size()); ++s) {
    const int end = call.sequences[static_cast<std::size_t>(s)].length + call.block;
    for (int row = 0; row < call.block; ++row) {
      for (int head = 0; head < call.heads; ++head) {
        const std::ptrdiff_t at =
            (std::ptrdiff_t{s} * call.block + row) * call.heads * call.dim + head * call.dim;
        AttendQuery query;
        query.q = call.q + at;
        query.out = call.out + at;
        const float* keys[attend_block_tokens];
        const float* values[attend_block_tokens];
        int tokens = 0;
        for (int position = first_visible(call, s, row); position < end; ++position) {
          const DraftToken token = draft_token(call, s, position, head / group);
          keys[tokens] = token.key;
          values[tokens++] = token.value;
          if ((position + 1) % attend_block_tokens == 0 || position + 1 == end) {
            attend_block(query, keys, values, tokens, shape);
            tokens = 0;
          }
        }
        attend_finish(query, shape);
      }
    }
  }
}

}  // namespace copse::kernels::ref
