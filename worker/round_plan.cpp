// How a plan becomes the batch of a round: held state is changed and every entry is checked against
// it, before anything is computed.
#include <algorithm>
#include <string>

#include "base/digest.h"
#include "worker/round.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

Error misfit(const char* field, int slot, const char* why) {
  return {ErrorCode::invalid_argument, field, "slot " + std::to_string(slot) + ": " + why};
}

}  // namespace

SlotOutcome& Round::add_outcome(int slot) {
  SlotOutcome& outcome = outcomes_[outcome_count_++];
  outcome = SlotOutcome();
  outcome.slot = slot;
  outcome.generation = slots_[slot].generation;
  outcome.digest = slots_[slot].digest;
  outcome.length = slots_[slot].length;
  return outcome;
}

Status Round::change_slots(const StepPlan& plan) {
  outcome_count_ = 0;
  chunks_.clear();
  entries_.clear();
  row_tokens_.clear();
  tree_rows_used_ = 0;
  tree_words_used_ = 0;
  for (const SlotRelease& release : plan.released) COPSE_RETURN_IF_ERROR(slots_.release(release));
  for (const SlotOpen& open : plan.opened) COPSE_RETURN_IF_ERROR(slots_.open(open));
  std::size_t prefill_rows = 0;
  for (const PrefillChunk& chunk : plan.prefill) {
    prefill_rows += chunk.tokens.size();
    if (prefill_rows > limits::step_rows) {
      return misfit("prefill", chunk.slot, "does not fit one forward pass");
    }
    COPSE_RETURN_IF_ERROR(read_chunk(chunk));
  }
  for (const DecodeEntry& entry : plan.decode) COPSE_RETURN_IF_ERROR(read_entry(entry));
  return {};
}

Status Round::read_chunk(const PrefillChunk& chunk) {
  COPSE_TRY(const int index, slots_.enter(chunk.slot, chunk.generation, chunk.new_pages));
  Slot& slot = slots_[index];
  const int count = static_cast<int>(chunk.tokens.size());
  if (count == 0) return misfit("prefill.tokens", index, "has none");
  if (slot.has_bonus) return misfit("prefill", index, "has finished its prefill");
  if (static_cast<int>(chunk.start) != slot.length) {
    return misfit("prefill.start", index, "does not follow the tokens before it");
  }
  if (slot.length + count > std::min(slots_.capacity(index), slots_.context_tokens())) {
    return misfit("prefill", index, "has more tokens than its pages or the context hold");
  }
  const int vocabulary = parts_.target->config().vocabulary;
  const bool known = std::ranges::all_of(
      chunk.tokens, [&](TokenId token) { return token >= 0 && token < vocabulary; });
  if (!known) return misfit("prefill.tokens", index, "has a token beyond the vocabulary");
  for (const Chunk& other : chunks_) {
    if (other.slot == index) return misfit("prefill", index, "stands in the plan twice");
  }
  slot.digest = DigestChain(slot.digest)
                    .add(chunk.start)
                    .add(chunk.last)
                    .add(std::span<const TokenId>(chunk.tokens.data(), chunk.tokens.size()))
                    .add(std::span<const PageId>(chunk.new_pages.data(), chunk.new_pages.size()))
                    .value();
  chunks_.push_back({&chunk, index, static_cast<int>(outcome_count_), 0});
  add_outcome(index);
  return {};
}

Status Round::read_entry(const DecodeEntry& entry) {
  COPSE_TRY(const int index, slots_.enter(entry.slot, entry.generation, entry.new_pages));
  Slot& slot = slots_[index];
  const bool known = entry.mode <= DraftMode::tree;
  const bool drafts = entry.mode == DraftMode::chain || entry.mode == DraftMode::tree;
  if (!known) return misfit("decode.mode", index, "is none that a worker knows");
  if (drafts && !drafting_) return misfit("decode.mode", index, "there is no drafter");
  if (entry.node_budget > limits::tree_nodes) {
    return misfit("decode.node_budget", index, "is above the largest tree");
  }
  for (const Chunk& other : chunks_) {
    if (other.slot == index) return misfit("decode", index, "is in the prefill of this step");
  }
  for (const Entry& other : entries_) {
    if (other.slot == index) return misfit("decode", index, "stands in the plan twice");
  }
  if (!slot.done && !slot.has_bonus) return misfit("decode", index, "has not finished its prefill");
  slot.digest = DigestChain(slot.digest)
                    .add(static_cast<int>(entry.mode))
                    .add(entry.node_budget)
                    .add(std::span<const PageId>(entry.new_pages.data(), entry.new_pages.size()))
                    .value();
  const int outcome = static_cast<int>(outcome_count_);
  add_outcome(index);
  if (slot.done) return {};
  Entry batch_entry;
  batch_entry.slot = index;
  batch_entry.outcome = outcome;
  batch_entry.mode = entry.mode;
  // Near the end of the context there is no room for a draft block.
  const bool room = slot.length + draft_depth_ + 1 <= slots_.context_tokens();
  if (!drafts || !room || entry.node_budget == 0) batch_entry.mode = DraftMode::none;
  const int budget = batch_entry.mode == DraftMode::none ? 0 : entry.node_budget;
  const int deepest = 1 + std::min(budget, draft_depth_);
  if (slot.length + std::min(deepest, slot.remaining) > slots_.capacity(index)) {
    return misfit("decode.new_pages", index, "has no page for the tokens of this round");
  }
  if (tree_rows_used_ + size(1 + budget) > tree_tokens_.size()) {
    return misfit("decode.node_budget", index, "does not fit one forward pass");
  }
  reserve_tree(batch_entry, budget);
  entries_.push_back(batch_entry);
  return {};
}

// Room for the tree, and its root, which is all of it without a draft.
void Round::reserve_tree(Entry& entry, int budget) {
  const std::size_t rows = size(1 + budget);
  const std::size_t words = rows * size(kernels::tree_mask_words(budget));
  kernels::TreeBuildTask& tree = entry.tree;
  tree.budget = budget;
  tree.row_tokens = std::span(tree_tokens_).subspan(tree_rows_used_, rows);
  tree.row_parents = std::span(tree_parents_).subspan(tree_rows_used_, rows);
  tree.row_positions = std::span(tree_positions_).subspan(tree_rows_used_, rows);
  tree.ancestors = std::span(tree_ancestors_).subspan(tree_words_used_, words);
  tree_rows_used_ += rows;
  tree_words_used_ += words;
  tree.row_tokens[0] = slots_[entry.slot].bonus;
  tree.row_parents[0] = -1;
  tree.row_positions[0] = slots_[entry.slot].length;
}

// --- the prefill segment ------------------------------------------------------------------------

Status Round::prefill() {
  row_tokens_.clear();
  row_positions_.clear();
  logit_rows_.clear();
  sequences_.clear();
  for (Chunk& chunk : chunks_) {
    const Slot& slot = slots_[chunk.slot];
    chunk.first_row = static_cast<int>(row_tokens_.size());
    const int count = static_cast<int>(chunk.plan->tokens.size());
    SequenceRows rows;
    rows.first_row = chunk.first_row;
    rows.rows = count;
    rows.prefix_length = slot.length;
    rows.scratch_slot = chunk.slot;
    rows.pages = slots_.pages(chunk.slot);
    sequences_.push_back(rows);
    for (int i = 0; i < count; ++i) {
      add_row(chunk.plan->tokens[size(i)], slot.length + i, chunk.plan->last && i + 1 == count);
    }
  }
  COPSE_TRY(const ForwardOutput output,
            parts_.target->forward({row_tokens_, row_positions_, sequences_, logit_rows_},
                                   *parts_.cache));
  commit_rows_.clear();
  for (const Chunk& chunk : chunks_) {
    Slot& slot = slots_[chunk.slot];
    const int count = static_cast<int>(chunk.plan->tokens.size());
    for (int i = 0; i < count; ++i) commit_row(chunk.slot, i, slot.length + i);
    if (drafting_) drafting_->add_prefill_rows(chunk.slot, slot.length, chunk.first_row, count);
    slot.length += count;
  }
  commit_rows();
  if (drafting_) COPSE_RETURN_IF_ERROR(drafting_->enter_prefill(output.features));

  sample_rows_.clear();
  for (const Chunk& chunk : chunks_) {
    const Slot& slot = slots_[chunk.slot];
    if (chunk.plan->last) sample_rows_.push_back(sample_row(slot, slot.length));
  }
  std::span<const TokenId> tokens;
  if (!sample_rows_.empty()) {
    COPSE_TRY(tokens, sampler_.draw(output.logits, sample_rows_));
  }
  for (const Chunk& chunk : chunks_) {
    finish_prompt(chunk, chunk.plan->last ? tokens.front() : 0);
    if (chunk.plan->last) tokens = tokens.subspan(1);
  }
  return {};
}

void Round::finish_prompt(const Chunk& chunk, TokenId token) {
  Slot& slot = slots_[chunk.slot];
  SlotOutcome& outcome = outcomes_[size(chunk.outcome)];
  DigestChain digest(slot.digest);
  if (chunk.plan->last) {
    const bool at_end =
        !slot.ignore_end && std::ranges::find(slot.end_tokens(), token) != slot.end_tokens().end();
    emit(slot, outcome, std::span(&token, 1), at_end);
    digest.add(token);
  }
  slot.digest = digest.add(slot.length).value();
  outcome.digest = slot.digest;
  outcome.length = slot.length;
}

}  // namespace copse
