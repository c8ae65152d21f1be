#pragma once
// Steps 4 to 7 for one plan: an optional prefill segment, then the round of the decoding sequences,
//   draft -> build -> verify -> sample -> accept -> commit
// over all of them in one batch, each with its own mode and budget. Every rank runs the same plan
// and decides from the same bytes, so the held states stay equal; the digests prove it.
//
// Collectives of a round, besides those inside the two models' passes (two all_reduces a layer, an
// all_gather a layer of the target from a few rows on, one for the embedding where it is sharded,
// one for the features that enter the drafter):
//   (1) an all_gather of draft candidates, if any entry drafts: 8 bytes * (leaves + k) a position
//   (2) an all_gather of sampled (score, token): 8 bytes a verified row
//   (3) with top-k, top-p or min-p in the batch: an all_gather of 4 bytes a filtered row, and per
//       histogram pass an all_reduce of 2 KiB a filtered row
// The prefill segment adds its target pass, the drafter's context pass, and (2) if a prompt ends.
//
// run() allocates nothing.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kernels/kv_commit/kv_commit.h"
#include "kernels/tree_accept/tree_accept.h"
#include "model/batch.h"
#include "model/deepseek/target_model.h"
#include "worker/draft_step.h"
#include "worker/sampler.h"
#include "worker/slot_table.h"

namespace copse {

// What one entry of the plan did, before it becomes a SlotResult.
struct SlotOutcome {
  int slot = 0;
  std::uint32_t generation = 0;
  Digest digest = 0;
  int length = 0;
  int draft_nodes = 0;
  int walk_length = 0;
  std::array<TokenId, limits::draft_block + 1> tokens{};
  int token_count = 0;
  FinishReason finish = FinishReason::none;
};

// Everything outlives the Round. drafter and draft_cache are null without a drafter.
struct RoundParts {
  TargetModel* target = nullptr;
  LatentCache* cache = nullptr;
  DrafterModel* drafter = nullptr;
  DraftCache* draft_cache = nullptr;
  Collective* group = nullptr;
  ThreadPool* threads = nullptr;
  SlotTable* slots = nullptr;
  const Clock* clock = nullptr;
};

class Round {
 public:
  explicit Round(const RoundParts& parts);

  // An error is a plan that does not fit the held state, or the collective's: in either case the
  // held state is worth nothing and the group must restart.
  Status run(const StepPlan& plan);

  // Of the last plan: its prefill chunks, then its decode entries.
  std::span<const SlotOutcome> outcomes() const;
  // The tree of the last plan's i-th entry that ran: root first, parents as rows. For those who
  // look on; valid until the next plan.
  struct TreeView {
    std::span<const TokenId> tokens;
    std::span<const std::int32_t> parents;
    std::span<const std::int32_t> positions;
  };
  TreeView tree(std::size_t entry) const;
  // Wall times of the phases; collective and CPU time are the executor's to add.
  const StepTiming& timing() const { return timing_; }

  // Names the running phase, from any thread.
  const char* stage() const { return stage_.load(std::memory_order_relaxed); }

 private:
  // One decode entry that is not a no-op.
  struct Entry {
    int slot = 0;
    int outcome = 0;
    DraftMode mode = DraftMode::none;
    int rows = 1;
    int first_row = 0;  // in the packed batch
    kernels::TreeBuildTask tree;
  };
  struct Chunk {
    const PrefillChunk* plan = nullptr;
    int slot = 0;
    int outcome = 0;
    int first_row = 0;
  };

  Status change_slots(const StepPlan& plan);
  Status read_chunk(const PrefillChunk& chunk);
  Status read_entry(const DecodeEntry& entry);
  SlotOutcome& add_outcome(int slot);

  Status prefill();
  Status draft();
  Result<ForwardOutput> verify();
  Result<std::span<const TokenId>> sample(std::span<const float> logits);
  void accept(std::span<const TokenId> targets);
  void commit(std::span<const float> features);

  void reserve_tree(Entry& entry, int budget);
  void add_row(TokenId token, int position, bool wants_logits);
  kernels::SampleRow sample_row(const Slot& slot, int depth) const;
  void commit_row(int slot, int scratch_row, int position);
  void commit_rows();
  void finish_prompt(const Chunk& chunk, TokenId token);
  void finish_entry(Entry& entry, kernels::TreeAcceptTask& walk, std::span<const float> features);
  // Takes `count` emitted tokens into slot and outcome: bonus, remaining, finish.
  void emit(Slot& slot, SlotOutcome& outcome, std::span<const TokenId> tokens, bool at_end);
  void enter_stage(const char* stage, std::uint32_t* finished_us);

  RoundParts parts_;
  SlotTable& slots_;
  std::unique_ptr<DraftStep> drafting_;  // null without a drafter
  Sampler sampler_;
  int draft_depth_;  // positions that a draft can have
  std::size_t feature_width_;

  std::vector<SlotOutcome> outcomes_;
  std::size_t outcome_count_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Entry> entries_;
  std::vector<DraftEntry> draft_entries_;
  // Trees of the batch: rows and mask words of all entries, one after the other.
  std::vector<TokenId> tree_tokens_;
  std::vector<std::int32_t> tree_parents_;
  std::vector<std::int32_t> tree_positions_;
  std::vector<std::uint64_t> tree_ancestors_;
  std::size_t tree_rows_used_ = 0;
  std::size_t tree_words_used_ = 0;
  // The packed batch.
  std::vector<TokenId> row_tokens_;
  std::vector<std::int32_t> row_positions_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<SequenceRows> sequences_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::KvCommitRow> commit_rows_;
  std::vector<kernels::TreeAcceptTask> walks_;
  std::vector<std::int32_t> accepted_;  // [entries][draft_block + 1]

  StepTiming timing_;
  Instant stage_started_{};
  std::atomic<const char*> stage_{"idle"};
};

}  // namespace copse
