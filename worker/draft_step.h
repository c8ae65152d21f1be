#pragma once
// Steps 4 and 5: features of committed tokens into the drafter's cache, one drafter pass over all
// drafting sequences, their top-k log-probabilities over all ranks, and a draft tree for each.
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/topk_logprob/topk_logprob.h"
#include "kernels/tree_build/tree_build.h"
#include "model/batch.h"
#include "model/dflash/drafter_model.h"
#include "model/shard.h"
#include "transport/collective/collective.h"
#include "worker/slot_table.h"

namespace copse {

// One sequence that drafts. `tree` is filled in: root and nodes.
struct DraftEntry {
  int slot = 0;
  int budget = 0;
  bool chain = false;
  kernels::TreeBuildTask* tree = nullptr;
};

class DraftStep {
 public:
  // Features of so many committed tokens of a slot can wait for the next draft: a sequence that
  // does not draft costs the drafter nothing but a copy.
  static constexpr int pending_max = 2 * limits::draft_block;

  DraftStep(DrafterModel& drafter, DraftCache& cache, SlotTable& slots, Collective& group,
            ThreadPool& threads, int vocabulary, const VocabularyShard& shard);

  int block_size() const { return block_size_; }

  // Prefill: rows [first_row, first_row + count) of `features` are the tokens at positions
  // [position, position + count) of the slot. Entered by enter_prefill().
  void add_prefill_rows(int slot, int position, int first_row, int count);
  Status enter_prefill(std::span<const float> features);

  // Decode: keep the features of one committed token; positions come in order, without gaps.
  void keep(int slot, std::span<const float> features);
  // Enters the waiting features of every slot among `drafting`, and of slots whose room runs out.
  Status enter_waiting(std::span<const DraftEntry> drafting);

  // One drafter pass over all entries; their candidates are then known on every rank.
  Status draft(std::span<const DraftEntry> entries);
  // Trees from the candidates of the last draft().
  void build(std::span<const DraftEntry> entries);

 private:
  Status append(std::span<const float> features);

  DrafterModel& drafter_;
  DraftCache& cache_;
  SlotTable& slots_;
  Collective& group_;
  ThreadPool& threads_;
  int vocabulary_;
  VocabularyShard shard_;
  int block_size_;
  std::size_t feature_width_;
  std::vector<float> waiting_;  // [slots][pending_max][feature_width]
  std::vector<std::int32_t> context_rows_;
  std::vector<std::int32_t> context_positions_;
  std::vector<ContextBatch::Destination> context_destinations_;
  std::vector<DraftSequence> sequences_;
  int positions_ = 0;  // of the last draft(): the deepest that a tree of its budgets can reach
  kernels::TopkShape topk_;
  std::vector<kernels::TopkWord> part_;
  std::vector<kernels::TopkWord> parts_;
  std::vector<float> log_probs_;    // [sequences][positions_][k]
  std::vector<TokenId> token_ids_;  // likewise
  std::vector<kernels::TreeBuildTask> tasks_;
  kernels::TreeBuildWorkspace workspace_;
};

// Rows that one append_context must be able to take.
int draft_context_rows_max(int slots);

}  // namespace copse
