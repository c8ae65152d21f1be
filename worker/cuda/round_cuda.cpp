#include "worker/cuda/round_cuda.h"

#include <algorithm>

#include "kernels/kv_commit/kv_commit_cuda.h"
#include "kernels/topk_logprob/topk_logprob_cuda.h"
#include "kernels/tree_accept/tree_accept_cuda.h"
#include "kernels/tree_build/tree_build_cuda.h"

namespace copse {

namespace cuda = kernels::cuda;

namespace {

constexpr std::size_t kPathMax = limits::draft_block + 1;

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

template <class T>
kernels::TopkShape topk_shape(const CudaRoundParts<T>& parts, int rows, int k) {
  const VocabularyShard& own = parts.target->vocabulary();
  const int vocabulary = parts.target->config().vocabulary;
  return {
      rows,     std::min(k, vocabulary), vocabulary, parts.group->world_size(), own.begin, own.rows,
      own.local};
}

}  // namespace

template <class T>
CudaRound<T>::CudaRound(const CudaRoundParts<T>& parts)
    : parts_(parts),
      sampler_(parts.rows_max, parts.target->config().vocabulary, parts.target->vocabulary(),
               *parts.group) {}

template <class T>
void CudaRound<T>::place(cuda::DeviceArena& arena) {
  const std::size_t s = size(parts_.sequences_max);
  const std::size_t rows = size(parts_.rows_max);
  const std::size_t words = rows * ((limits::tree_nodes + 1 + 63) / 64);
  cuda::RoundArrays& a = arrays_;
  arena.place("plan: slots to start", 1, start_plan_);
  arena.place("plan: prefill chunk", 1, prefill_plan_);
  arena.place("plan: round", 1, round_plan_);
  arena.place("slots", size(parts_.slots), a.slots);
  arena.place("page tables", size(parts_.slots) * size(parts_.table_pages), a.page_tables);
  arena.place("results", s, a.results);
  for (auto** per_entry :
       {&a.entry_slot, &a.entry_mode, &a.budget, &a.chain, &a.root_token, &a.root_position,
        &a.draft_length, &a.rows, &a.walk_length, &a.kept, &a.at_end}) {
    arena.place("entries", s, *per_entry);
  }
  for (auto** per_row : {&a.row_tokens, &a.row_parents, &a.row_positions}) {
    arena.place("rows", rows, *per_row);
  }
  arena.place("ancestors", words, a.ancestors);
  arena.place("sequences", s, a.sequences);
  arena.place("accepted rows", s * kPathMax, a.accepted);
  arena.place("target tokens", rows, targets_);
  arena.place("logit row", 1, logit_row_);
  sampler_.place(arena);
  if (parts_.drafter == nullptr) return;
  const std::size_t block_rows = s * size(block());
  const std::size_t waiting = size(waiting_max());
  const std::size_t width = size(parts_.target->feature_width());
  const auto shape = topk_shape(parts_, static_cast<int>(block_rows), limits::tree_top_k);
  const std::size_t candidates = block_rows * limits::tree_top_k;
  arena.place("draft tokens", block_rows, a.draft_tokens);
  arena.place("draft positions", block_rows, a.draft_positions);
  arena.place("waiting positions", s * waiting, a.waiting_positions);
  arena.place("waiting features", size(parts_.slots) * waiting * width, waiting_);
  arena.place("entering features", s * waiting * width, entering_);
  arena.place("candidates of this rank", cuda::topk_part_words(shape), part_);
  arena.place("candidates of all ranks",
              cuda::topk_part_words(shape) * size(parts_.group->world_size()), parts_all_);
  arena.place("log-probabilities", candidates, log_probs_);
  arena.place("candidate tokens", candidates, token_ids_);
}

template <class T>
cuda::RoundShape CudaRound<T>::shape(int sequences, int rows) const {
  cuda::RoundShape shape;
  shape.sequences = sequences;
  shape.rows_per_sequence = rows;
  shape.block = block();
  shape.waiting_max = waiting_max();
  shape.slots = parts_.slots;
  shape.table_pages = parts_.table_pages;
  shape.context_tokens = parts_.context_tokens;
  return shape;
}

template <class T>
CudaBatch CudaRound<T>::batch(int sequences, int rows) const {
  CudaBatch batch;
  batch.sequences = sequences;
  batch.rows_per_sequence = rows;
  batch.tokens = arrays_.row_tokens;
  batch.positions = arrays_.row_positions;
  batch.sequence = arrays_.sequences;
  return batch;
}

template <class T>
Status CudaRound<T>::start_slots(Stream stream) {
  return cuda::start_slots(start_plan_, arrays_, stream);
}

template <class T>
Status CudaRound<T>::prefill(int rows, bool filtered, Stream stream) {
  const cuda::RoundShape s = shape(1, rows);
  COPSE_RETURN_IF_ERROR(cuda::read_prefill(prefill_plan_, s, arrays_, logit_row_, stream));
  CudaBatch chunk = batch(1, rows);
  chunk.logit_rows = logit_row_;
  chunk.logit_count = 1;
  COPSE_RETURN_IF_ERROR(parts_.target->forward(chunk, *parts_.cache, stream));
  COPSE_RETURN_IF_ERROR(commit(1, rows, nullptr, stream));
  if (parts_.drafter != nullptr) {
    CudaContextBatch<T> context;
    context.rows_per_sequence = rows;
    context.features = parts_.target->features();
    context.positions = arrays_.row_positions;
    context.slots = arrays_.entry_slot;
    context.page_tables = arrays_.page_tables;
    COPSE_RETURN_IF_ERROR(parts_.drafter->append_context(context, *parts_.draft_cache, stream));
  }
  COPSE_RETURN_IF_ERROR(sampler_.draw({parts_.target->logits(), 1, rows, logit_row_, filtered},
                                      arrays_, targets_, stream));
  cuda::RoundArrays drawn = arrays_;
  drawn.targets = targets_;
  return cuda::finish_prefill(prefill_plan_, s, drawn, stream);
}

template <class T>
Status CudaRound<T>::round(const RoundKey& key, Stream stream) {
  CHECK(key.sequences * key.rows <= parts_.rows_max && key.sequences <= parts_.sequences_max);
  CHECK(parts_.drafter != nullptr || (!key.drafts() && !key.context));
  const cuda::RoundShape s = shape(key.sequences, key.rows);
  const TokenId mask = parts_.drafter == nullptr ? 0 : parts_.drafter->config().mask_token;
  COPSE_RETURN_IF_ERROR(cuda::read_plan(round_plan_, s, mask, arrays_, stream));
  if (key.context || key.drafts()) COPSE_RETURN_IF_ERROR(append_waiting(key.sequences, stream));
  if (key.drafts()) COPSE_RETURN_IF_ERROR(draft(key, stream));
  COPSE_RETURN_IF_ERROR(cuda::prepare_verify(s, arrays_, stream));
  COPSE_RETURN_IF_ERROR(
      parts_.target->forward(batch(key.sequences, key.rows), *parts_.cache, stream));
  COPSE_RETURN_IF_ERROR(sampler_.draw(
      {parts_.target->logits(), key.sequences * key.rows, key.rows, nullptr, key.filtered}, arrays_,
      targets_, stream));
  COPSE_RETURN_IF_ERROR(accept(key, stream));
  COPSE_RETURN_IF_ERROR(commit(key.sequences, std::min(key.rows, static_cast<int>(kPathMax)),
                               arrays_.accepted, stream));
  if (parts_.drafter != nullptr) {
    COPSE_RETURN_IF_ERROR(cuda::keep_features(s, arrays_, parts_.target->features(),
                                              parts_.target->feature_width(), waiting_, stream));
  }
  cuda::RoundArrays drawn = arrays_;
  drawn.targets = targets_;
  return cuda::finish_round(s, drawn, stream);
}

// --- steps 4 and 5 ------------------------------------------------------------------------------

template <class T>
Status CudaRound<T>::append_waiting(int sequences, Stream stream) {
  const cuda::RoundShape s = shape(sequences, 1);
  COPSE_RETURN_IF_ERROR(cuda::gather_waiting(s, arrays_, waiting_, parts_.target->feature_width(),
                                             entering_, stream));
  CudaContextBatch<T> context;
  context.sequences = sequences;
  context.rows_per_sequence = waiting_max();
  context.features = entering_;
  context.positions = arrays_.waiting_positions;
  context.slots = arrays_.entry_slot;
  context.page_tables = arrays_.page_tables;
  return parts_.drafter->append_context(context, *parts_.draft_cache, stream);
}

template <class T>
Status CudaRound<T>::draft(const RoundKey& key, Stream stream) {
  CudaDraftBatch blocks;
  blocks.sequences = key.sequences;
  blocks.tokens = arrays_.draft_tokens;
  blocks.positions = arrays_.draft_positions;
  blocks.lengths = arrays_.draft_length;
  blocks.slots = arrays_.entry_slot;
  blocks.page_tables = arrays_.page_tables;
  COPSE_RETURN_IF_ERROR(parts_.drafter->forward(blocks, *parts_.draft_cache, stream));
  const int k = std::min(key.rows - 1, limits::tree_top_k);
  const kernels::TopkShape shape = topk_shape(parts_, key.sequences * block(), k);
  COPSE_RETURN_IF_ERROR(cuda::topk_logprob_local(shape, parts_.drafter->logits(), part_, stream));
  const kernels::TopkWord* all = part_;
  if (shape.world_size > 1) {
    const std::size_t bytes = cuda::topk_part_words(shape) * sizeof(kernels::TopkWord);
    COPSE_RETURN_IF_ERROR(parts_.group->all_gather(part_, parts_all_, bytes, stream));
    all = parts_all_;
  }
  COPSE_RETURN_IF_ERROR(cuda::topk_logprob_merge(shape, all, log_probs_, token_ids_, stream));
  return build(key, shape.k, stream);
}

template <class T>
Status CudaRound<T>::build(const RoundKey& key, int k, Stream stream) {
  cuda::TreeBuildCall call;
  call.sequences = key.sequences;
  call.positions = block() - 1;
  call.k = k;
  call.candidate_rows = block();
  call.rows_per_sequence = key.rows;
  // Row 0 of a block is the bonus token: what it proposes is of no use.
  call.log_probs = log_probs_ + k;
  call.token_ids = token_ids_ + k;
  call.budget = arrays_.budget;
  call.chain = arrays_.chain;
  call.root_token = arrays_.root_token;
  call.root_position = arrays_.root_position;
  call.row_tokens = arrays_.row_tokens;
  call.row_parents = arrays_.row_parents;
  call.row_positions = arrays_.row_positions;
  call.ancestors = arrays_.ancestors;
  call.rows = arrays_.rows;
  return cuda::tree_build(call, stream);
}

// --- step 7 -------------------------------------------------------------------------------------

template <class T>
Status CudaRound<T>::accept(const RoundKey& key, Stream stream) {
  cuda::TreeAcceptCall call;
  call.sequences = key.sequences;
  call.rows_per_sequence = key.rows;
  call.row_tokens = arrays_.row_tokens;
  call.row_parents = arrays_.row_parents;
  call.rows = arrays_.rows;
  call.targets = targets_;
  call.slots = arrays_.slots;
  call.entry_slot = arrays_.entry_slot;
  call.accepted = arrays_.accepted;
  call.walk_length = arrays_.walk_length;
  call.kept = arrays_.kept;
  call.at_end = arrays_.at_end;
  return cuda::tree_accept(call, stream);
}

template <class T>
Status CudaRound<T>::commit(int sequences, int rows_max, const std::int32_t* accepted,
                            Stream stream) {
  const CudaLatentCache<T>& cache = *parts_.cache;
  cuda::KvCommitCall<T> call;
  call.layers = cache.layers;
  call.slots = cache.slots;
  call.scratch_rows = cache.scratch_rows;
  call.pages_count = cache.pages_count;
  call.width = cache.width;
  call.scratch = cache.scratch;
  call.pages = cache.pages;
  call.sequences = sequences;
  call.rows_max = rows_max;
  call.accepted_stride = static_cast<int>(kPathMax);
  call.table_pages = parts_.table_pages;
  call.accepted = accepted;
  call.counts = arrays_.kept;
  call.entry_slot = arrays_.entry_slot;
  call.first_position = arrays_.root_position;
  call.page_tables = arrays_.page_tables;
  return cuda::kv_commit(call, stream);
}

template class CudaRound<float>;
template class CudaRound<Bf16>;

}  // namespace copse
