#include <algorithm>
#include <vector>

#include "kernels/common/attend.h"
#include "kernels/verify_attention/visible.h"

namespace copse::kernels::ref {

void verify_attention(const VerifyAttention& call) {
  const AttendShape shape = {latent_width(call), call.latent, call.scale};
  for (const VerifySequence& sequence : call.sequences) {
    for (int row = 0; row < sequence.rows; ++row) {
      std::vector<const float*> visible;
      for (int p = 0; p < sequence.prefix_length; ++p) {
        visible.push_back(prefix_row(call, sequence, p));
      }
      for (int node = 0; node <= row; ++node) {
        if (next_visible(sequence, row, node) == node) {
          visible.push_back(scratch_row(call, sequence, node));
        }
      }
      for (int head = 0; head < call.heads; ++head) {
        const std::ptrdiff_t at = std::ptrdiff_t{sequence.first_row + row} * call.heads + head;
        AttendQuery query;
        query.q = call.q + at * shape.key_dim;
        query.out = call.out + at * shape.value_dim;
        const int count = static_cast<int>(visible.size());
        for (int first = 0; first < count; first += attend_block_tokens) {
          const int tokens = std::min(attend_block_tokens, count - first);
          attend_block(query, visible.data() + first, visible.data() + first, tokens, shape);
        }
        attend_finish(query, shape);
      }
    }
  }
}

}  // namespace copse::kernels::ref
