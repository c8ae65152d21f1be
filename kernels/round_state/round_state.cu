// Entries are few (32 at most) and their work is short: one thread each, in one block.
#include <cuda_runtime.h>

#include "base/digest.h"
#include "kernels/common/cuda/status.h"
#include "kernels/round_state/round_state.h"

namespace copse::kernels::cuda {
namespace {

constexpr int kModeNone = 0;
constexpr int kModeChain = 1;
constexpr int kFinishNone = 0;
constexpr int kFinishStop = 1;
constexpr int kFinishLength = 2;
constexpr int kFinishError = 4;
constexpr int kEntryThreads = limits::batch_sequences;

__device__ void append_pages(const NewPages& pages, int slot, const RoundShape& shape,
                             const RoundArrays& a) {
  PageId* table = a.page_tables + static_cast<std::ptrdiff_t>(slot) * shape.table_pages;
  for (int i = 0; i < pages.count; ++i) table[pages.before + i] = pages.pages[i];
}

__device__ std::span<const PageId> page_span(const NewPages& pages) {
  return {pages.pages, static_cast<std::size_t>(pages.count)};
}

__device__ void start_result(RoundResult& result, const DeviceSlot& slot, int index) {
  result.slot = index;
  result.misfit = Misfit::none;
  result.digest = slot.digest;
  result.length = slot.length;
  result.draft_nodes = 0;
  result.walk_length = 0;
  result.token_count = 0;
  result.finish = kFinishNone;
}

__global__ void start_slots_kernel(const StartPlan* plan, RoundArrays a) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < plan->count) a.slots[plan->start[i].slot] = plan->start[i].state;
}

__device__ void no_entry(int s, const RoundShape& shape, const RoundArrays& a) {
  a.entry_slot[s] = -1;
  a.entry_mode[s] = kModeNone;
  a.budget[s] = 0;
  a.chain[s] = 0;
  a.root_token[s] = 0;
  a.root_position[s] = -1;
  a.draft_length[s] = -1;
  for (int i = 0; i < shape.block; ++i) {
    a.draft_tokens[s * shape.block + i] = 0;
    a.draft_positions[s * shape.block + i] = -1;
  }
  for (int i = 0; i < shape.waiting_max; ++i) {
    a.waiting_positions[s * shape.waiting_max + i] = -1;
  }
}

// The drafter's block, and the features that enter its cache before it runs.
__device__ void plan_draft(int s, DeviceSlot& slot, bool drafts, TokenId mask_token,
                           const RoundShape& shape, const RoundArrays& a) {
  if (drafts) {
    a.draft_length[s] = slot.length;
    for (int i = 0; i < shape.block; ++i) {
      a.draft_tokens[s * shape.block + i] = i == 0 ? slot.bonus : mask_token;
      a.draft_positions[s * shape.block + i] = slot.length + i;
    }
  }
  if (!drafts && slot.pending + shape.block <= shape.waiting_max) return;
  for (int i = 0; i < slot.pending; ++i) {
    a.waiting_positions[s * shape.waiting_max + i] = slot.length - slot.pending + i;
  }
  // gather_waiting reads the count from the positions.
  slot.pending = 0;
}

__device__ void read_entry(int s, const PlanEntry& entry, TokenId mask_token,
                           const RoundShape& shape, const RoundArrays& a) {
  DeviceSlot& slot = a.slots[entry.slot];
  append_pages(entry.pages, entry.slot, shape, a);
  RoundResult& result = a.results[s];
  start_result(result, slot, entry.slot);
  if (!slot.done && !slot.has_bonus) {
    result.misfit = Misfit::no_prefill;
    return;
  }
  slot.digest = DigestChain(slot.digest)
                    .add(entry.mode)
                    .add(entry.budget)
                    .add(page_span(entry.pages))
                    .value();
  result.digest = slot.digest;
  if (slot.done) return;
  const int depth = shape.block > 0 ? shape.block - 1 : 0;
  const bool room = slot.length + depth + 1 <= shape.context_tokens;
  const bool drafts = entry.mode != kModeNone && room && entry.budget > 0;
  const int mode = drafts ? entry.mode : kModeNone;
  const int budget = drafts ? entry.budget : 0;
  const int deepest = 1 + min(budget, depth);
  const int capacity = (entry.pages.before + entry.pages.count) * limits::page_tokens;
  if (slot.length + min(deepest, slot.remaining) > capacity) {
    result.misfit = Misfit::no_page;
    return;
  }
  a.entry_slot[s] = entry.slot;
  a.entry_mode[s] = mode;
  a.budget[s] = budget;
  a.chain[s] = mode == kModeChain ? 1 : 0;
  a.root_token[s] = slot.bonus;
  a.root_position[s] = slot.length;
  if (shape.block > 0) plan_draft(s, slot, drafts, mask_token, shape, a);
}

__global__ void read_plan_kernel(const RoundPlan* plan, RoundShape shape, TokenId mask_token,
                                 RoundArrays a) {
  const int s = static_cast<int>(threadIdx.x);
  if (s >= shape.sequences) return;
  no_entry(s, shape, a);
  if (s < plan->entries) read_entry(s, plan->entry[s], mask_token, shape, a);
}

// One block a sequence.
__global__ void prepare_verify_kernel(RoundShape shape, RoundArrays a) {
  const int s = static_cast<int>(blockIdx.x);
  const int n = shape.rows_per_sequence;
  const int slot = a.entry_slot[s];
  if (n == 1 && threadIdx.x == 0) {
    a.rows[s] = slot < 0 ? 0 : 1;
    a.row_tokens[s] = a.root_token[s];
    a.row_parents[s] = -1;
    a.row_positions[s] = a.root_position[s];
    a.ancestors[s] = 1;
  }
  if (threadIdx.x != 0) return;
  VerifySequence& sequence = a.sequences[s];
  sequence.first_row = s * n;
  sequence.rows = slot < 0 ? 0 : a.rows[s];
  sequence.prefix_length = slot < 0 ? 0 : a.root_position[s];
  sequence.slot = slot < 0 ? 0 : slot;
  sequence.pages = a.page_tables + static_cast<std::ptrdiff_t>(sequence.slot) * shape.table_pages;
  sequence.ancestors = a.ancestors + static_cast<std::ptrdiff_t>(s) * n * shape.mask_words();
  sequence.mask_words = shape.mask_words();
}

// Takes emitted tokens into slot and result, as Round::emit does.
__device__ void emit(DeviceSlot& slot, RoundResult& result, int count, bool at_end,
                     int context_tokens) {
  const bool broken = result.tokens[count - 1] < 0;  // sample_not_finite
  if (broken) --count;
  result.token_count = count;
  slot.remaining -= count;
  slot.drawn += count;
  if (!broken) slot.bonus = result.tokens[count - 1];
  slot.has_bonus = 1;
  result.finish = kFinishNone;
  if (broken) {
    result.finish = kFinishError;
  } else if (at_end) {
    result.finish = kFinishStop;
  } else if (slot.remaining == 0 || slot.length >= context_tokens) {
    result.finish = kFinishLength;
  }
  slot.done = result.finish != kFinishNone;
}

__global__ void finish_round_kernel(RoundShape shape, RoundArrays a) {
  const int s = static_cast<int>(threadIdx.x);
  if (s >= shape.sequences || a.entry_slot[s] < 0) return;
  const int n = shape.rows_per_sequence;
  DeviceSlot& slot = a.slots[a.entry_slot[s]];
  RoundResult& result = a.results[s];
  const int kept = a.kept[s];
  const auto rows = static_cast<std::size_t>(a.rows[s]);
  const std::int32_t* accepted = a.accepted + s * (limits::draft_block + 1);
  for (int i = 0; i < kept; ++i) result.tokens[i] = a.targets[s * n + accepted[i]];
  slot.length += kept;
  if (shape.block > 0) slot.pending += kept;
  emit(slot, result, kept, a.at_end[s] != 0, shape.context_tokens);
  result.draft_nodes = static_cast<int>(rows) - 1;
  result.walk_length = a.walk_length[s];
  slot.digest = DigestChain(slot.digest)
                    .add(a.entry_mode[s])
                    .add(std::span<const TokenId>(a.row_tokens + s * n, rows))
                    .add(std::span<const std::int32_t>(a.row_parents + s * n, rows))
                    .add(std::span<const std::int32_t>(accepted, static_cast<std::size_t>(kept)))
                    .add(slot.bonus)
                    .add(slot.length)
                    .value();
  result.digest = slot.digest;
  result.length = slot.length;
}

__device__ Misfit check_prefill(const PrefillPlan& plan, const DeviceSlot& slot,
                                const RoundShape& shape) {
  if (slot.has_bonus) return Misfit::prefill_done;
  if (static_cast<int>(plan.start) != slot.length) return Misfit::prefill_start;
  const int capacity = (plan.pages.before + plan.pages.count) * limits::page_tokens;
  const int end = slot.length + plan.count;
  return end > capacity || end > shape.context_tokens ? Misfit::no_page : Misfit::none;
}

__global__ void read_prefill_kernel(const PrefillPlan* plan, RoundShape shape, RoundArrays a,
                                    std::int32_t* logit_row) {
  __shared__ int count;
  const int index = plan->slot;
  DeviceSlot& slot = a.slots[index];
  const int start = slot.length;
  if (threadIdx.x == 0) {
    append_pages(plan->pages, index, shape, a);
    start_result(a.results[0], slot, index);
    const Misfit misfit = check_prefill(*plan, slot, shape);
    a.results[0].misfit = misfit;
    count = misfit == Misfit::none ? plan->count : 0;
    a.entry_slot[0] = count > 0 ? index : -1;
    a.root_position[0] = start;
    a.kept[0] = count;
    a.rows[0] = count;
    *logit_row = max(count - 1, 0);
    VerifySequence& sequence = a.sequences[0];
    sequence.first_row = 0;
    sequence.rows = count;
    sequence.prefix_length = start;
    sequence.slot = index;
    sequence.pages = a.page_tables + static_cast<std::ptrdiff_t>(index) * shape.table_pages;
    sequence.ancestors = nullptr;  // a causal chain
    sequence.mask_words = 0;
    if (count > 0) {
      slot.digest =
          DigestChain(slot.digest)
              .add(plan->start)
              .add(plan->last != 0)
              .add(std::span<const TokenId>(plan->tokens, static_cast<std::size_t>(count)))
              .add(page_span(plan->pages))
              .value();
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < shape.rows_per_sequence;
       i += static_cast<int>(blockDim.x)) {
    a.row_tokens[i] = i < count ? plan->tokens[i] : 0;
    a.row_positions[i] = i < count ? start + i : -1;
  }
}

__global__ void finish_prefill_kernel(const PrefillPlan* plan, RoundShape shape, RoundArrays a) {
  if (a.entry_slot[0] < 0) return;
  DeviceSlot& slot = a.slots[plan->slot];
  RoundResult& result = a.results[0];
  slot.length += plan->count;
  DigestChain digest(slot.digest);
  if (plan->last != 0) {
    const TokenId token = a.targets[0];
    bool at_end = false;
    for (int i = 0; i < slot.end_token_count && !slot.ignore_end; ++i) {
      at_end = at_end || slot.end_tokens[i] == token;
    }
    result.tokens[0] = token;
    emit(slot, result, 1, at_end, shape.context_tokens);
    digest.add(token);
  }
  slot.digest = digest.add(slot.length).value();
  result.digest = slot.digest;
  result.length = slot.length;
}

}  // namespace

Status start_slots(const StartPlan* plan, const RoundArrays& arrays, Stream stream) {
  start_slots_kernel<<<1, kEntryThreads, 0, stream>>>(plan, arrays);
  return launched("start_slots");
}

Status read_plan(const RoundPlan* plan, const RoundShape& shape, TokenId mask_token,
                 const RoundArrays& arrays, Stream stream) {
  CHECK(shape.sequences > 0 && shape.sequences <= kEntryThreads);
  read_plan_kernel<<<1, kEntryThreads, 0, stream>>>(plan, shape, mask_token, arrays);
  return launched("read_plan");
}

Status prepare_verify(const RoundShape& shape, const RoundArrays& arrays, Stream stream) {
  prepare_verify_kernel<<<shape.sequences, 32, 0, stream>>>(shape, arrays);
  return launched("prepare_verify");
}

Status finish_round(const RoundShape& shape, const RoundArrays& arrays, Stream stream) {
  finish_round_kernel<<<1, kEntryThreads, 0, stream>>>(shape, arrays);
  return launched("finish_round");
}

Status read_prefill(const PrefillPlan* plan, const RoundShape& shape, const RoundArrays& arrays,
                    std::int32_t* logit_row, Stream stream) {
  read_prefill_kernel<<<1, 256, 0, stream>>>(plan, shape, arrays, logit_row);
  return launched("read_prefill");
}

Status finish_prefill(const PrefillPlan* plan, const RoundShape& shape, const RoundArrays& arrays,
                      Stream stream) {
  finish_prefill_kernel<<<1, 1, 0, stream>>>(plan, shape, arrays);
  return launched("finish_prefill");
}

}  // namespace copse::kernels::cuda
