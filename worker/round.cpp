#include "worker/round.h"

#include <algorithm>
#include <string>

#include "base/digest.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

constexpr std::size_t rows_max = limits::step_rows;
constexpr std::size_t walk_max = limits::draft_block + 1;

std::unique_ptr<DraftStep> make_draft_step(const RoundParts& parts) {
  if (parts.drafter == nullptr) return nullptr;
  return std::make_unique<DraftStep>(*parts.drafter, *parts.draft_cache, *parts.slots, *parts.group,
                                     *parts.threads, parts.target->config().vocabulary,
                                     parts.target->vocabulary());
}

}  // namespace

Round::Round(const RoundParts& parts)
    : parts_(parts),
      slots_(*parts.slots),
      drafting_(make_draft_step(parts)),
      sampler_(static_cast<int>(rows_max), parts.target->config().vocabulary,
               parts.target->vocabulary(), *parts.group, *parts.threads),
      draft_depth_(drafting_ ? drafting_->block_size() - 1 : 0),
      feature_width_(size(parts.target->feature_width())),
      outcomes_(2 * limits::batch_sequences),
      tree_tokens_(rows_max),
      tree_parents_(rows_max),
      tree_positions_(rows_max),
      tree_ancestors_(rows_max * size(kernels::tree_mask_words(limits::tree_nodes))),
      accepted_(limits::batch_sequences * walk_max) {
  chunks_.reserve(limits::batch_sequences);
  entries_.reserve(limits::batch_sequences);
  draft_entries_.reserve(limits::batch_sequences);
  row_tokens_.reserve(rows_max);
  row_positions_.reserve(rows_max);
  logit_rows_.reserve(rows_max);
  sequences_.reserve(limits::batch_sequences);
  sample_rows_.reserve(rows_max);
  commit_rows_.reserve(rows_max);
  walks_.reserve(limits::batch_sequences);
}

std::span<const SlotOutcome> Round::outcomes() const {
  return std::span(outcomes_).first(outcome_count_);
}

Round::TreeView Round::tree(std::size_t entry) const {
  CHECK(entry < entries_.size());
  const kernels::TreeBuildTask& tree = entries_[entry].tree;
  const std::size_t rows = size(1 + tree.nodes);
  return {tree.row_tokens.first(rows), tree.row_parents.first(rows),
          tree.row_positions.first(rows)};
}

void Round::enter_stage(const char* stage, std::uint32_t* finished_us) {
  const Instant now = parts_.clock->now();
  if (finished_us != nullptr) {
    *finished_us +=
        static_cast<std::uint32_t>((now - stage_started_) / std::chrono::microseconds(1));
  }
  stage_started_ = now;
  stage_.store(stage, std::memory_order_relaxed);
}

Status Round::run(const StepPlan& plan) {
  timing_ = {};
  const Instant started = parts_.clock->now();
  enter_stage("read plan", nullptr);
  COPSE_RETURN_IF_ERROR(change_slots(plan));
  if (!chunks_.empty()) {
    enter_stage("prefill", nullptr);
    COPSE_RETURN_IF_ERROR(prefill());
    enter_stage("read plan", &timing_.prefill_us);
  }
  if (!entries_.empty()) {
    enter_stage("draft", nullptr);
    COPSE_RETURN_IF_ERROR(draft());
    enter_stage("verify", &timing_.build_us);
    COPSE_TRY(const ForwardOutput output, verify());
    enter_stage("sample", &timing_.verify_us);
    COPSE_TRY(const std::span<const TokenId> targets, sample(output.logits));
    accept(targets);
    commit(output.features);
    enter_stage("idle", &timing_.accept_us);
  }
  timing_.total_us =
      static_cast<std::uint32_t>((parts_.clock->now() - started) / std::chrono::microseconds(1));
  stage_.store("idle", std::memory_order_relaxed);
  return {};
}

// --- draft: steps 4 and 5 -----------------------------------------------------------------------

Status Round::draft() {
  draft_entries_.clear();
  for (Entry& entry : entries_) {
    if (entry.mode == DraftMode::none) continue;
    draft_entries_.push_back(
        {entry.slot, entry.tree.budget, entry.mode == DraftMode::chain, &entry.tree});
  }
  if (drafting_) COPSE_RETURN_IF_ERROR(drafting_->enter_waiting(draft_entries_));
  if (!draft_entries_.empty()) COPSE_RETURN_IF_ERROR(drafting_->draft(draft_entries_));
  enter_stage("build", &timing_.draft_us);
  if (!draft_entries_.empty()) drafting_->build(draft_entries_);
  return {};
}

// --- verify: step 6 -----------------------------------------------------------------------------

void Round::add_row(TokenId token, int position, bool wants_logits) {
  if (wants_logits) logit_rows_.push_back(static_cast<std::int32_t>(row_tokens_.size()));
  row_tokens_.push_back(token);
  row_positions_.push_back(position);
}

Result<ForwardOutput> Round::verify() {
  row_tokens_.clear();
  row_positions_.clear();
  logit_rows_.clear();
  sequences_.clear();
  for (Entry& entry : entries_) {
    const Slot& slot = slots_[entry.slot];
    entry.first_row = static_cast<int>(row_tokens_.size());
    entry.rows = 1 + entry.tree.nodes;
    SequenceRows rows;
    rows.first_row = entry.first_row;
    rows.rows = entry.rows;
    rows.prefix_length = slot.length;
    rows.scratch_slot = entry.slot;
    rows.pages = slots_.pages(entry.slot);
    if (entry.mode == DraftMode::tree) {
      rows.mask_words = kernels::tree_mask_words(entry.tree.nodes);
      rows.parents = entry.tree.row_parents.first(size(entry.rows));
      rows.ancestors = entry.tree.ancestors.first(size(entry.rows) * size(rows.mask_words));
    }
    sequences_.push_back(rows);
    for (int row = 0; row < entry.rows; ++row) {
      add_row(entry.tree.row_tokens[size(row)], entry.tree.row_positions[size(row)], true);
    }
  }
  return parts_.target->forward({row_tokens_, row_positions_, sequences_, logit_rows_},
                                *parts_.cache);
}

// --- sample, accept, commit: step 7 -------------------------------------------------------------

kernels::SampleRow Round::sample_row(const Slot& slot, int position) const {
  kernels::SampleRow row;
  row.temperature = slot.sampling.temperature;
  row.top_p = slot.sampling.top_p;
  row.min_p = slot.sampling.min_p;
  row.top_k = slot.sampling.top_k;
  row.seed = slot.sampling.seed;
  row.choice = slot.sampling.choice;
  row.position = static_cast<std::uint64_t>(position);
  // A round's root stands at slot.length and is the last token drawn; each position on, one more.
  const int drawn_before = slot.drawn + (slot.has_bonus ? position - slot.length - 1 : 0);
  if (drawn_before < slot.min_tokens) row.masked = slot.end_tokens();
  return row;
}

Result<std::span<const TokenId>> Round::sample(std::span<const float> logits) {
  sample_rows_.clear();
  for (const Entry& entry : entries_) {
    for (int row = 0; row < entry.rows; ++row) {
      const int position = entry.tree.row_positions[size(row)] + 1;
      sample_rows_.push_back(sample_row(slots_[entry.slot], position));
    }
  }
  return sampler_.draw(logits, sample_rows_);
}

void Round::accept(std::span<const TokenId> targets) {
  walks_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const Slot& slot = slots_[entry.slot];
    kernels::TreeAcceptTask walk;
    walk.row_tokens = entry.tree.row_tokens.first(size(entry.rows));
    walk.row_parents = entry.tree.row_parents.first(size(entry.rows));
    walk.row_targets = targets.subspan(size(entry.first_row), size(entry.rows));
    if (!slot.ignore_end) walk.end_tokens = slot.end_tokens();
    walk.remaining = slot.remaining;
    walk.accepted = std::span(accepted_).subspan(i * walk_max, walk_max);
    walks_.push_back(walk);
  }
  kernels::tree_accept(walks_);
}

void Round::commit(std::span<const float> features) {
  commit_rows_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) finish_entry(entries_[i], walks_[i], features);
  commit_rows();
}

void Round::finish_entry(Entry& entry, kernels::TreeAcceptTask& walk,
                         std::span<const float> features) {
  Slot& slot = slots_[entry.slot];
  SlotOutcome& outcome = outcomes_[size(entry.outcome)];
  std::array<TokenId, walk_max> tokens{};
  for (int i = 0; i < walk.kept; ++i) {
    const int row = walk.accepted[size(i)];
    tokens[size(i)] = walk.row_targets[size(row)];
    commit_row(entry.slot, row, slot.length + i);
    if (drafting_) {
      drafting_->keep(entry.slot, features.subspan(size(entry.first_row + row) * feature_width_,
                                                   feature_width_));
    }
  }
  slot.length += walk.kept;
  emit(slot, outcome, std::span(tokens).first(size(walk.kept)), walk.at_end);
  outcome.draft_nodes = entry.tree.nodes;
  outcome.walk_length = walk.walk_length;
  slot.digest = DigestChain(slot.digest)
                    .add(static_cast<int>(entry.mode))
                    .add(std::span<const TokenId>(walk.row_tokens))
                    .add(std::span<const std::int32_t>(walk.row_parents))
                    .add(std::span<const std::int32_t>(walk.accepted.first(size(walk.kept))))
                    .add(slot.bonus)
                    .add(slot.length)
                    .value();
  outcome.digest = slot.digest;
  outcome.length = slot.length;
}

void Round::emit(Slot& slot, SlotOutcome& outcome, std::span<const TokenId> tokens, bool at_end) {
  // A row whose logits are not finite ends its own sequence and no other.
  const bool broken = tokens.back() == kernels::sample_not_finite;
  if (broken) tokens = tokens.first(tokens.size() - 1);
  std::ranges::copy(tokens, outcome.tokens.begin());
  outcome.token_count = static_cast<int>(tokens.size());
  slot.remaining -= outcome.token_count;
  slot.drawn += outcome.token_count;
  if (!broken) slot.bonus = tokens.back();
  slot.has_bonus = true;
  if (broken) {
    outcome.finish = FinishReason::error;
  } else if (at_end) {
    outcome.finish = FinishReason::stop;
  } else if (slot.remaining == 0 || slot.length >= slots_.context_tokens()) {
    outcome.finish = FinishReason::length;
  }
  slot.done = outcome.finish != FinishReason::none;
}

void Round::commit_row(int slot, int scratch_row, int position) {
  const SlotTable::Place place = slots_.place(slot, position);
  commit_rows_.push_back({slot, scratch_row, place.page, place.row});
}

void Round::commit_rows() {
  LatentCache& cache = *parts_.cache;
  const LatentCache::Shape& shape = cache.shape();
  kernels::KvCommitCache view;
  view.layers = shape.layers;
  view.slots = shape.slots;
  view.scratch_rows = shape.scratch_rows;
  view.pages_count = shape.pages;
  view.width = shape.width;
  // Layers lie one after the other.
  view.scratch = {cache.scratch(0).data(), size(shape.layers) * cache.scratch(0).size()};
  view.pages = {cache.pages(0).data(), size(shape.layers) * cache.pages(0).size()};
  kernels::kv_commit(view, commit_rows_);
}

}  // namespace copse
