#pragma once
// Step 3: who runs. Continuous batching, first come first served, prefill in chunks beside decode,
// one plan ahead of the results. Pure logic: time is passed in, nothing is sent.
//
//   next_plan -> (all ranks) -> commit; reset() when the workers are lost.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "scheduler/draft_policy.h"
#include "scheduler/kv_pages.h"
#include "scheduler/sequence.h"
#include "scheduler/slot_pool.h"
#include "transport/messages/to_worker.h"

namespace copse {

// Cache pages that hold `tokens` tokens.
int pages_of(std::uint32_t tokens);

struct SchedulerOptions {
  int max_sequences = limits::batch_sequences;     // that one step can hold; 1 .. batch_sequences
  int prefill_chunk = limits::prefill_chunk_rows;  // rows of one step's prefill; 1 .. tree_nodes
  DraftMode draft = DraftMode::automatic;          // of requests that leave it to the server
  int node_budget = 16;                            // of requests that ask to draft without a size
};

struct Refusal {
  RefusalKind kind = RefusalKind::invalid;
  std::string at;
  std::string message;
  std::uint32_t retry_after_s = 0;
};

// New tokens of one sequence, for its client.
struct Delivery {
  SequenceId sequence = 0;
  std::uint32_t index = 0;  // of the first among its generated tokens
  Bounded<TokenId, limits::draft_block + 1> tokens;
  std::uint16_t draft_nodes = 0;
  bool round = false;
};

struct Finished {
  SequenceId sequence = 0;
  FinishReason reason = FinishReason::none;
  std::uint32_t generated = 0;
  DraftSummary draft;
  float queue_s = 0;
  float prefill_s = 0;
  float decode_s = 0;
  std::string error;
};

struct Committed {
  std::vector<Delivery> deliveries;
  std::vector<Finished> finished;
};

// Totals since the start of the process; delivered tokens alone.
struct SchedulerTotals {
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t rounds = 0;  // that drafted
  std::uint64_t draft_nodes = 0;
  std::uint64_t accepted_tokens = 0;
  Bounded<std::uint64_t, limits::draft_block> accepted_by_position;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);

  // The group of `epoch` is ready with these bounds; nothing is open on it. Plans begin with this.
  // Returns what waited and can never fit these bounds (a smaller pool than before).
  std::vector<Finished> start(std::uint32_t epoch, const WorkerReady& ready, Instant now);
  // The workers are lost: what ran waits again, first in line, to prefill prompt and delivered
  // tokens. No result of the lost epoch may be committed afterwards.
  void reset();

  // Queues a request, or says why not. start() has been called at least once.
  std::optional<Refusal> submit(SequenceId id, const Submit& request, Instant now);
  // Ends a sequence at the next step boundary: no later plan names it and what comes back for it is
  // dropped. None if it is not known (any more): cancelling twice is harmless. Of its tokens only
  // `delivered` count, if the client says that it used fewer.
  std::optional<Finished> cancel(SequenceId id, FinishReason reason, Instant now,
                                 std::string error = {},
                                 std::optional<std::uint32_t> delivered = std::nullopt);
  // A paused sequence keeps its slot and pages, and is not named by plans.
  void pause(SequenceId id, bool paused);

  // The next step, or none: nothing to do, or limits::plans_in_flight are unanswered.
  std::optional<StepPlan> next_plan(Instant now);
  // The answer to the oldest unanswered plan. Error: it does not answer that plan; nothing was
  // kept, and the group has to be restarted.
  Result<Committed> commit(const StepResult& result, Instant now);

  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int plans_in_flight() const { return static_cast<int>(in_flight_.size()); }
  bool idle() const { return sequences_.empty() && in_flight_.empty(); }
  int pages_used() const { return pages_.used(); }
  int pages_total() const { return pages_.total(); }
  const SchedulerTotals& totals() const { return totals_; }
  std::string draft_reason() const { return policy_.reason(); }
  std::vector<SequenceId> sequences() const;

  // Pages and slots add up, and at rest nothing is held.
  Status check_integrity() const;

 private:
  // What one unanswered plan asked for, in the order of its results.
  struct Asked {
    SequenceId sequence = 0;
    SlotId slot;
    std::uint32_t prefill_end = 0;  // length after a prefill chunk; 0 for a round
    bool draws = false;             // a last chunk or a round
    std::uint32_t worst = 0;        // most that a round commits
    DraftChoice choice;
  };
  struct InFlight {
    StepId step = 0;
    std::vector<Asked> asked;
  };
  struct DecodePlan {
    Sequence* sequence = nullptr;
    DraftChoice choice;
  };
  struct ChunkPlan {
    Sequence* sequence = nullptr;
    int rows = 0;
    bool opens = false;
  };

  // scheduler_admit.cpp
  std::optional<Refusal> refuse_values(const Submit& request) const;
  std::optional<Refusal> refuse_length(const Submit& request) const;
  std::uint32_t longest(std::uint64_t prompt_tokens, std::uint64_t max_tokens) const;
  bool admit_first();
  Finished finish(Sequence& sequence, FinishReason reason, Instant now, std::string error);

  // scheduler_plan.cpp
  std::vector<DecodePlan> choose_decodes();
  bool may_draft(const Sequence& sequence) const;
  DraftChoice fixed_choice(const Sequence& sequence, int nodes_max) const;
  std::vector<ChunkPlan> choose_chunks();
  void plan_decode(const DecodePlan& decode, StepPlan& plan, InFlight& asked);
  void plan_chunk(const ChunkPlan& chunk, StepPlan& plan, InFlight& asked);
  SlotOpen open_of(const Sequence& sequence) const;
  PlanPages grow(const Sequence& sequence, std::uint32_t tokens);

  // scheduler_commit.cpp
  Status check_result(const StepResult& result) const;
  Status check_entry(const Asked& asked, const SlotResult& result) const;
  Status check_tokens(const Sequence& sequence, const Asked& asked, const SlotResult& result) const;
  void learn_step_time(const StepResult& result, const InFlight& plan);
  void commit_entry(const Asked& asked, const SlotResult& result, Instant now, Committed& out);
  void count_round(Sequence& sequence, const Asked& asked, const SlotResult& result,
                   std::size_t delivered);

  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;

  SchedulerOptions options_;
  WorkerReady ready_;
  std::uint32_t epoch_ = 0;
  bool started_ = false;  // once; bounds are known from then on
  bool active_ = false;   // workers are there to be planned for
  KvPages pages_;
  SlotPool slots_;
  DraftPolicy policy_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::deque<SequenceId> waiting_;  // in order of arrival
  std::vector<Sequence*> running_;  // in order of admission
  std::deque<InFlight> in_flight_;
  StepId next_step_ = 1;
  SchedulerTotals totals_;
};

}  // namespace copse
