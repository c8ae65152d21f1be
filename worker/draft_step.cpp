#include "worker/draft_step.h"

#include <algorithm>

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

}  // namespace

int draft_context_rows_max(int slots) {
  return std::max(limits::step_rows, slots * DraftStep::pending_max);
}

DraftStep::DraftStep(DrafterModel& drafter, DraftCache& cache, SlotTable& slots, Collective& group,
                     ThreadPool& threads, int vocabulary, const VocabularyShard& shard)
    : drafter_(drafter),
      cache_(cache),
      slots_(slots),
      group_(group),
      threads_(threads),
      vocabulary_(vocabulary),
      shard_(shard),
      block_size_(drafter.config().block_size),
      feature_width_(size(drafter.config().feature_width())),
      waiting_(size(slots.slots()) * pending_max * feature_width_),
      workspace_(limits::tree_nodes, drafter.config().block_size - 1) {
  const std::size_t context_rows = size(draft_context_rows_max(slots.slots()));
  context_rows_.reserve(context_rows);
  context_positions_.reserve(context_rows);
  context_destinations_.reserve(context_rows);
  sequences_.reserve(size(slots.slots()));
  tasks_.reserve(size(slots.slots()));
  const std::size_t rows = size(slots.slots()) * size(block_size_ - 1);
  const std::size_t words = rows * (limits::reduction_leaves + limits::tree_top_k);
  part_.resize(words);
  parts_.resize(words * size(group.world_size()));
  log_probs_.resize(rows * limits::tree_top_k);
  token_ids_.resize(rows * limits::tree_top_k);
}

void DraftStep::add_prefill_rows(int slot, int position, int first_row, int count) {
  for (int i = 0; i < count; ++i) {
    const SlotTable::Place place = slots_.place(slot, position + i);
    context_rows_.push_back(first_row + i);
    context_positions_.push_back(position + i);
    context_destinations_.push_back({place.page, place.row});
  }
}

Status DraftStep::append(std::span<const float> features) {
  if (context_rows_.empty()) return {};
  const ContextBatch batch = {features, context_rows_, context_positions_, context_destinations_};
  Status status = drafter_.append_context(batch, cache_);
  context_rows_.clear();
  context_positions_.clear();
  context_destinations_.clear();
  return status;
}

Status DraftStep::enter_prefill(std::span<const float> features) {
  return append(features);
}

void DraftStep::keep(int slot, std::span<const float> features) {
  Slot& state = slots_[slot];
  CHECK(state.pending_features < pending_max && features.size() == feature_width_);
  const std::size_t row = size(slot) * pending_max + size(state.pending_features++);
  std::ranges::copy(features, waiting_.begin() + static_cast<std::ptrdiff_t>(row * feature_width_));
}

Status DraftStep::enter_waiting(std::span<const DraftEntry> drafting) {
  for (int slot = 0; slot < slots_.slots(); ++slot) {
    Slot& state = slots_[slot];
    if (!state.open || state.done || state.pending_features == 0) continue;
    const bool drafts =
        std::ranges::any_of(drafting, [&](const DraftEntry& entry) { return entry.slot == slot; });
    // A round adds at most a block of rows.
    if (!drafts && state.pending_features + block_size_ <= pending_max) continue;
    add_prefill_rows(slot, state.length - state.pending_features, slot * pending_max,
                     state.pending_features);
    state.pending_features = 0;
  }
  return append(waiting_);
}

Status DraftStep::draft(std::span<const DraftEntry> entries) {
  sequences_.clear();
  positions_ = 1;
  int k = 1;
  for (const DraftEntry& entry : entries) {
    const Slot& slot = slots_[entry.slot];
    positions_ = std::max(positions_, std::min(entry.budget, block_size_ - 1));
    sequences_.push_back({slot.bonus, slot.length, slots_.pages(entry.slot)});
    if (!entry.chain) k = std::max(k, std::min(entry.budget, limits::tree_top_k));
  }
  COPSE_TRY(const DraftOutput output, drafter_.forward({sequences_, positions_}, cache_));
  topk_ = {static_cast<int>(entries.size()) * positions_,
           std::min(k, vocabulary_),
           vocabulary_,
           group_.world_size(),
           shard_.begin,
           shard_.rows,
           shard_.local};
  const auto part = std::span(part_).first(topk_.part_words());
  const auto parts = std::span(parts_).first(topk_.part_words() * size(group_.world_size()));
  kernels::topk_logprob_local(topk_, output.logits, part, threads_);
  COPSE_RETURN_IF_ERROR(group_.all_gather(std::as_bytes(part), std::as_writable_bytes(parts)));
  kernels::topk_logprob_merge(topk_, parts, log_probs_, token_ids_);
  return {};
}

void DraftStep::build(std::span<const DraftEntry> entries) {
  tasks_.clear();
  const std::size_t candidates = size(positions_) * size(topk_.k);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    kernels::TreeBuildTask& task = *entries[i].tree;
    const Slot& slot = slots_[entries[i].slot];
    task.log_probs = std::span(log_probs_).subspan(i * candidates, candidates);
    task.token_ids = std::span(token_ids_).subspan(i * candidates, candidates);
    task.positions = positions_;
    task.k = topk_.k;
    task.budget = entries[i].budget;
    task.chain = entries[i].chain;
    task.root_token = slot.bonus;
    task.root_position = slot.length;
    tasks_.push_back(task);
  }
  kernels::tree_build(tasks_, workspace_);
  for (std::size_t i = 0; i < entries.size(); ++i) *entries[i].tree = tasks_[i];
}

}  // namespace copse
