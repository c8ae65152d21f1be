#pragma once
// Step 6: one rank's shard of the target (DeepSeek-V2/V3, Kimi-K2). forward.cpp reads like the
// paper (arXiv 2412.19437 section 2.1): multi-head latent attention with absorbed projections over
// a paged latent cache, then a dense MLP or a mixture of experts. Heads, inner dimensions or whole
// experts, and the vocabulary are split over ranks; two all-reduces per layer join them.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/batch.h"
#include "model/config/model_config.h"
#include "model/shard.h"
#include "model/weights/load_progress.h"

namespace copse {

class Collective;
class ThreadPool;
class TokenTables;

struct TargetOptions {
  int rows_max = 0;  // of one forward pass; all workspace is sized for it
  int logit_rows_max = 0;
  std::vector<int> feature_layers;  // ascending; -1 is the embedding's output
};

class TargetModel {
 public:
  // Reads this rank's slices of the checkpoint in `folder`. `group` and `threads` must outlive the
  // model. Errors name the tensor or key.
  static Result<std::unique_ptr<TargetModel>> load(const std::string& folder,
                                                   const ModelConfig& config,
                                                   const TargetOptions& options, Collective& group,
                                                   ThreadPool& threads,
                                                   const OnWeightsRead& progress = {});
  ~TargetModel();
  TargetModel(const TargetModel&) = delete;
  TargetModel& operator=(const TargetModel&) = delete;

  // Every rank of the group calls it with the same batch. Writes the latent row of every packed row
  // into its slot's scratch; pages are only read. An error is the collective's: the step is lost.
  // Allocates nothing.
  Result<ForwardOutput> forward(const ForwardBatch& batch, LatentCache& cache);

  const ModelConfig& config() const;
  const VocabularyShard& vocabulary() const;  // padding logits are -infinity
  const TokenTables& tables() const;          // embedding and head, which the drafter shares
  int rows_max() const;
  int feature_width() const;            // feature_layers * hidden
  std::uint64_t weight_bytes() const;   // held by this rank
  std::uint64_t sharded_bytes() const;  // of those, what is split over ranks
  std::uint64_t workspace_bytes() const;

 private:
  struct Parts;
  explicit TargetModel(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace copse
