#pragma once
// The vocabulary's two tables on one rank: embedding rows and the head. Target and drafter share
// them.
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"
#include "kernels/linear/linear.h"
#include "model/shard.h"
#include "model/weights/load_plan.h"

namespace copse {

class Collective;

class TokenTables {
 public:
  // `rows`: the embedding rows of this rank; `head`: its part of the logits.
  TokenTables(int vocabulary, Range rows, const VocabularyShard& head)
      : vocabulary_(vocabulary), rows_(rows), shard_(head) {}

  // Adds the slices to `plan`; this object must stay where it is until the plan has run.
  void plan(LoadPlan& plan, const LinearSpec& embedding, const LinearSpec& head);

  // out [tokens][hidden]. One all_reduce where the embedding is sharded.
  Status embed(std::span<const TokenId> tokens, kernels::Matrix out, Collective& group) const;
  // x [n][hidden] -> out [n][shard.local]; padding is -infinity.
  void logits(kernels::ConstMatrix x, kernels::Matrix out, ThreadPool& threads) const;

  const VocabularyShard& shard() const { return shard_; }

 private:
  int vocabulary_;
  Range rows_;
  VocabularyShard shard_;
  HostMatrix embedding_;  // [rows][hidden], as stored
  kernels::PackedWeight head_;
};

}  // namespace copse
