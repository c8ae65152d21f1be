#pragma once
// Which part of each tensor of the target a rank holds.
#include "model/config/model_config.h"
#include "model/split_sum.h"

namespace copse {

struct TargetShard {
  Shard shard;
  SplitSum heads;        // q_b, kv_b by output; o_proj by input
  SplitSum dense_inner;  // gate, up by output; down by input
  bool whole_experts = false;
  SplitSum experts;       // whole_experts: ids held; otherwise all
  SplitSum expert_inner;  // of each expert held; all of it where whole_experts
  SplitSum shared_inner;
  int expert_leaves = 1;       // of a layer of experts, shared expert included
  VocabularyShard vocabulary;  // of the head
  Range embedding_rows;        // all tokens where a collective would cost more than the table
};

// Experts are split along their inner dimension where an eighth of it is whole in the codec's
// groups or blocks: every rank then works on every token alike. Otherwise whole experts are dealt
// out. The choice does not depend on the number of ranks.
TargetShard shard_target(const ModelConfig& config, const Shard& shard);

}  // namespace copse
