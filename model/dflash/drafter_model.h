#pragma once
// Step 4: one rank's shard of the DFlash drafter (arXiv 2602.06036). Features of committed tokens
// enter every layer as extra keys and values; a block of [bonus, mask, ...] attends to them and,
// both ways, to itself; the target's head turns the last block_size - 1 positions into logits.
#include <memory>
#include <string>

#include "base/result.h"
#include "model/batch.h"
#include "model/config/drafter_config.h"
#include "model/deepseek/target_model.h"

namespace copse {

struct DrafterOptions {
  int sequences_max = 0;
  int context_rows_max = 0;  // of one append_context
};

class DrafterModel {
 public:
  // Reads this rank's slices. `tables` (TargetModel::tables), `group` and `threads` must outlive
  // the model; call check_drafter_fits first.
  static Result<std::unique_ptr<DrafterModel>> load(const std::string& folder,
                                                    const DrafterConfig& config,
                                                    const DrafterOptions& options,
                                                    const TokenTables& tables, Collective& group,
                                                    ThreadPool& threads,
                                                    const OnWeightsRead& progress = {});
  ~DrafterModel();
  DrafterModel(const DrafterModel&) = delete;
  DrafterModel& operator=(const DrafterModel&) = delete;

  // Projects accepted tokens' features into the pages of every layer. Same call on every rank.
  Status append_context(const ContextBatch& batch, DraftCache& cache);
  // One pass over a block per sequence; keys and values of the block are not kept. The output is
  // valid until the next call.
  Result<DraftOutput> forward(const DraftBatch& batch, const DraftCache& cache);

  const DrafterConfig& config() const;
  DraftCache::Shape cache_shape(int pages) const;  // with this rank's key/value heads
  std::uint64_t weight_bytes() const;
  std::uint64_t sharded_bytes() const;  // of those, what is split over ranks
  std::uint64_t workspace_bytes() const;

 private:
  struct Parts;
  explicit DrafterModel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace copse
