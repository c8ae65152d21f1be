#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/verify_attention/verify_attention_cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/common/attend-inl.h"
#include "kernels/verify_attention/visible.h"

#ifndef COPSE_KERNELS_VERIFY_CHUNK
#define COPSE_KERNELS_VERIFY_CHUNK
namespace copse::kernels {
namespace {

// Queries (row, head) of one work item: their sums of 512 values (64 KiB) and a block of 64 latent
// rows (147 KiB) stay in the second-level cache together.
constexpr int chunk_queries = 32;

}  // namespace
}  // namespace copse::kernels
#endif  // COPSE_KERNELS_VERIFY_CHUNK

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// Adds what row `row` alone sees, from `position` (a multiple of 64) on, to its `count` queries.
void attend_own_blocks(const VerifyAttention& call, const VerifySequence& sequence, int row,
                       int position, AttendQuery* queries, int count, const AttendShape& shape) {
  const float* rows[attend_block_tokens];
  int tokens = 0;
  for (; position < sequence.prefix_length; ++position) {
    rows[tokens++] = prefix_row(call, sequence, position);
  }
  // A chain's rows stand at their positions; a tree's shared blocks never reach into scratch.
  int node = next_visible(sequence, row, position - sequence.prefix_length);
  for (; node <= row; node = next_visible(sequence, row, node + 1)) {
    if (tokens == attend_block_tokens) {
      attend_block(queries, count, rows, rows, tokens, shape);
      tokens = 0;
    }
    rows[tokens++] = scratch_row(call, sequence, node);
  }
  if (tokens > 0) attend_block(queries, count, rows, rows, tokens, shape);
}

// Queries [first, last) of a sequence, numbered row * heads + head. First the blocks that all of
// them see whole, then each row's own.
void verify_queries(const VerifyAttention& call, const VerifySequence& sequence, int first,
                    int last) {
  const AttendShape shape = {latent_width(call), call.latent, call.scale};
  AttendQuery queries[chunk_queries];
  for (int i = first; i < last; ++i) {
    const std::ptrdiff_t at = std::ptrdiff_t{sequence.first_row} * call.heads + i;
    queries[i - first].q = call.q + at * shape.key_dim;
    queries[i - first].out = call.out + at * shape.value_dim;
  }
  const int first_row = first / call.heads;
  const int chain_rows = sequence.ancestors == nullptr ? first_row + 1 : 0;
  const int common =
      (sequence.prefix_length + chain_rows) / attend_block_tokens * attend_block_tokens;
  for (int position = 0; position < common; position += attend_block_tokens) {
    const float* rows[attend_block_tokens];
    for (int t = 0; t < attend_block_tokens; ++t) {
      const int at = position + t;
      rows[t] = at < sequence.prefix_length
                    ? prefix_row(call, sequence, at)
                    : scratch_row(call, sequence, at - sequence.prefix_length);
    }
    attend_block(queries, last - first, rows, rows, attend_block_tokens, shape);
  }
  for (int i = first; i < last;) {
    const int row = i / call.heads;
    const int end = std::min(last, (row + 1) * call.heads);
    attend_own_blocks(call, sequence, row, common, queries + (i - first), end - i, shape);
    i = end;
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

HWY_EXPORT(verify_queries);

// Below this many pairs of query and token waking a thread costs more than it saves.
constexpr int inline_pairs = 256;

// Whole tiles of 4 queries, and a few work items per thread where there are queries enough.
int chunk_of(const VerifyAttention& call, int threads) {
  int queries = 0;
  int tokens = 0;
  for (const VerifySequence& sequence : call.sequences) {
    queries += sequence.rows * call.heads;
    tokens += sequence.prefix_length + 1;
  }
  if (threads == 1 || std::int64_t{queries} * tokens < inline_pairs) return chunk_queries;
  const int share = (queries + 2 * threads - 1) / (2 * threads);
  return std::clamp((share + 3) / 4 * 4, 4, chunk_queries);
}

}  // namespace

void verify_attention(const VerifyAttention& call, ThreadPool& pool) {
  static_assert(attend_block_tokens == limits::page_tokens);
  CHECK(call.heads > 0 && call.latent > 0 && call.rope >= 0);
  const int chunk = chunk_of(call, pool.threads());
  int items = 0;
  for (const VerifySequence& sequence : call.sequences) {
    CHECK(sequence.rows > 0 && sequence.rows <= call.scratch_rows && sequence.prefix_length >= 0);
    CHECK(sequence.ancestors == nullptr || sequence.mask_words * 64 >= sequence.rows);
    items += (sequence.rows * call.heads + chunk - 1) / chunk;
  }
  const auto queries = HWY_DYNAMIC_DISPATCH(verify_queries);
  pool.parallel_for(0, items, 1, [&](int first, int last) {
    int item = 0;
    for (const VerifySequence& sequence : call.sequences) {
      const int count = sequence.rows * call.heads;
      for (int begin = 0; begin < count; begin += chunk, ++item) {
        if (item < first || item >= last) continue;
        queries(call, sequence, begin, std::min(begin + chunk, count));
      }
    }
  });
}

std::uint64_t verify_attention_bytes_moved(const VerifyAttention& call) {
  std::uint64_t tokens = 0;
  std::uint64_t rows = 0;
  for (const VerifySequence& sequence : call.sequences) {
    tokens += static_cast<std::uint64_t>(sequence.prefix_length + sequence.rows);
    rows += static_cast<std::uint64_t>(sequence.rows);
  }
  const auto width = static_cast<std::uint64_t>(latent_width(call));
  const auto query = width + static_cast<std::uint64_t>(call.latent);
  return sizeof(float) * (tokens * width + rows * static_cast<std::uint64_t>(call.heads) * query);
}

std::uint64_t verify_attention_flops(const VerifyAttention& call) {
  std::uint64_t pairs = 0;
  for (const VerifySequence& sequence : call.sequences) {
    for (int row = 0; row < sequence.rows; ++row) {
      pairs += static_cast<std::uint64_t>(sequence.prefix_length + visible_rows(sequence, row));
    }
  }
  return 2 * pairs * static_cast<std::uint64_t>(call.heads) *
         static_cast<std::uint64_t>(latent_width(call) + call.latent);
}

}  // namespace copse::kernels
#endif
