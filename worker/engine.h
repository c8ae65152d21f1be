#pragma once
// Everything one rank computes with: its shard of target and drafter, its caches, its slots and the
// round over them. Lives on the executor's thread.
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "worker/metered_collective.h"
#include "worker/round.h"
#include "worker/step_engine.h"

namespace copse {

struct EngineOptions {
  std::string model;    // checkpoint folder
  std::string drafter;  // empty: none
  int threads = 1;
  int slots = 16;        // sequences at a time
  int pages = 0;         // 0: as many as kv_memory_mb holds
  int kv_memory_mb = 0;  // of this rank, for pages alone; 0: all slots at 4096 tokens, up to 1 GiB
  int context_tokens = 0;  // 0: what model, drafter and pages allow
};

class Engine {
 public:
  using Progress = LoadObserver;

  // Reads this rank's weights and allocates all that steps need. Errors name the file or key.
  static Result<std::unique_ptr<Engine>> load(const EngineOptions& options, Collective& group,
                                              const Clock& clock, const Progress& progress);
  ~Engine();

  // One plan; the answer lacks epoch and step. tokens are filled in by rank 0 alone.
  Status run(const StepPlan& plan);
  StepResult result() const;
  const char* stage() const { return round_->stage(); }

  // What the group may use; costs are measured (cost_table.h), equal calls on every rank.
  Result<WorkerReady> measure();

 private:
  Engine(Collective& group, const Clock& clock, int threads)
      : group_(group), clock_(clock), threads_(threads) {}
  Status load_models(const EngineOptions& options, const Progress& progress);
  void allocate(const EngineOptions& options);

  MeteredCollective group_;
  const Clock& clock_;
  ThreadPool threads_;
  std::unique_ptr<TargetModel> target_;
  std::unique_ptr<DrafterModel> drafter_;
  std::unique_ptr<LatentCache> cache_;
  std::unique_ptr<DraftCache> draft_cache_;
  std::unique_ptr<SlotTable> slots_;
  std::unique_ptr<Round> round_;
  StepTiming timing_;
};

}  // namespace copse
