#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/draft_attention/draft_attention_cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/common/attend-inl.h"
#include "kernels/draft_attention/draft_rows.h"

#ifndef COPSE_KERNELS_DRAFT_CHUNK
#define COPSE_KERNELS_DRAFT_CHUNK
namespace copse::kernels {
namespace {

// Queries of one work item, all of one key/value head.
constexpr int chunk_queries = 32;

}  // namespace
}  // namespace copse::kernels
#endif  // COPSE_KERNELS_DRAFT_CHUNK

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// Queries [first, last) of one sequence and key/value head, numbered row * group + head in group.
// Those that begin at the same context position walk their tokens together.
void draft_queries(const DraftAttention& call, int sequence, int kv_head, int first, int last) {
  const AttendShape shape = {call.dim, call.dim, call.scale};
  const int group = call.heads / call.kv_heads;
  const int end = call.sequences[static_cast<std::size_t>(sequence)].length + call.block;
  AttendQuery queries[chunk_queries];
  for (int i = first; i < last; ++i) {
    const std::ptrdiff_t row = std::ptrdiff_t{sequence} * call.block + i / group;
    const std::ptrdiff_t at = (row * call.heads + kv_head * group + i % group) * call.dim;
    queries[i - first].q = call.q + at;
    queries[i - first].out = call.out + at;
  }
  for (int i = first; i < last;) {
    const int begin = first_visible(call, sequence, i / group);
    int next = i + 1;
    while (next < last && first_visible(call, sequence, next / group) == begin) ++next;
    const float* keys[attend_block_tokens];
    const float* values[attend_block_tokens];
    for (int position = begin; position < end;) {
      const int block_end =
          std::min(end, (position / attend_block_tokens + 1) * attend_block_tokens);
      int tokens = 0;
      for (; position < block_end; ++position) {
        const DraftToken token = draft_token(call, sequence, position, kv_head);
        keys[tokens] = token.key;
        values[tokens++] = token.value;
      }
      attend_block(queries + (i - first), next - i, keys, values, tokens, shape);
    }
    i = next;
  }
  for (int i = first; i < last; ++i) attend_finish(queries[i - first], shape);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace copse::kernels {
namespace {

HWY_EXPORT(draft_queries);

}  // namespace

void draft_attention(const DraftAttention& call, ThreadPool& pool) {
  static_assert(attend_block_tokens == limits::page_tokens);
  CHECK(call.kv_heads > 0 && call.heads % call.kv_heads == 0 && call.dim > 0);
  CHECK(call.block > 0 && call.window >= 0);
  const int count = call.block * (call.heads / call.kv_heads);
  const int chunks = (count + chunk_queries - 1) / chunk_queries;
  const int per_sequence = call.kv_heads * chunks;
  const int items = static_cast<int>(call.sequences.size()) * per_sequence;
  const auto queries = HWY_DYNAMIC_DISPATCH(draft_queries);
  pool.parallel_for(0, items, 1, [&](int first, int last) {
    for (int item = first; item < last; ++item) {
      const int rest = item % per_sequence;
      const int begin = rest % chunks * chunk_queries;
      queries(call, item / per_sequence, rest / chunks, begin,
              std::min(begin + chunk_queries, count));
    }
  });
}

std::uint64_t draft_attention_bytes_moved(const DraftAttention& call) {
  std::uint64_t tokens = 0;
  for (const DraftContext& context : call.sequences) {
    const int seen = call.window == 0 ? context.length : std::min(context.length, call.window);
    tokens += static_cast<std::uint64_t>(seen + call.block);
  }
  const auto rows = static_cast<std::uint64_t>(call.block) * call.sequences.size();
  return 2 * sizeof(float) * static_cast<std::uint64_t>(call.dim) *
         (tokens * static_cast<std::uint64_t>(call.kv_heads) +
          rows * static_cast<std::uint64_t>(call.heads));
}

}  // namespace copse::kernels
#endif
