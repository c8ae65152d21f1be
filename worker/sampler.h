#pragma once
// Steps 6-7: the target's token after each row of logits, the same on every rank. The collectives
// that kernels/sample leaves to its caller stand here: one all_gather of 8 bytes a row, and for
// batches with top-k, top-p or min-p one all_gather of maxima and a few all_reduces before it.
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/sample/sample_filter.h"
#include "model/shard.h"
#include "transport/collective/collective.h"

namespace copse {

class Sampler {
 public:
  Sampler(int rows_max, int vocabulary, const VocabularyShard& shard, Collective& group,
          ThreadPool& threads);

  // logits: [rows][shard.local]. One token a row, kernels::sample_not_finite for a row with a logit
  // that is not finite; valid until the next call.
  Result<std::span<const TokenId>> draw(std::span<const float> logits,
                                        std::span<const kernels::SampleRow> rows);

 private:
  Result<std::span<const kernels::SampleThreshold>> thresholds(
      const kernels::SampleLogits& logits, std::span<const kernels::SampleRow> rows);

  VocabularyShard shard_;
  Collective& group_;
  ThreadPool& threads_;
  kernels::SampleFilter filter_;
  std::vector<kernels::SampleChoice> mine_;  // [rows_max]
  std::vector<kernels::SampleChoice> all_;   // [world_size][rows_max]
  std::vector<float> maxima_;                // [world_size][rows_max]
  std::vector<TokenId> tokens_;              // [rows_max]
};

}  // namespace copse
