#pragma once
// Names, shapes, sharding and one rank's packed weights of a DFlash drafter.
#include <vector>

#include "kernels/moe_experts/moe_experts.h"
#include "model/config/drafter_config.h"
#include "model/split_sum.h"
#include "model/weights/load_plan.h"

namespace copse {

struct DrafterLayerSpecs {
  VectorSpec input_norm;
  VectorSpec post_attention_norm;
  LinearSpec q, k, v, o;
  VectorSpec q_norm, k_norm;  // per head, [head_dim]
  LinearSpec gate, up, down;
};

struct DrafterSpecs {
  LinearSpec fc;  // [hidden][features * hidden]
  VectorSpec hidden_norm;
  VectorSpec norm;
  std::vector<DrafterLayerSpecs> layers;
};

DrafterSpecs drafter_specs(const DrafterConfig& config);
// As check_target_tensors; a drafter's own copy of embedding or head is skipped, since DFlash uses
// the target's.
Status check_drafter_tensors(const Checkpoint& checkpoint, const DrafterSpecs& specs);

struct DrafterShard {
  SplitSum heads;  // q by output, o by input
  Range kv_heads;  // k, v by output; several ranks hold the same one where there are fewer
  SplitSum inner;
  SplitSum features;  // fc's input: all of it where an all-reduce would cost more than the table
};
DrafterShard shard_drafter(const DrafterConfig& config, const Shard& shard);

struct DrafterLayerWeights {
  std::vector<float> input_norm;
  std::vector<float> post_attention_norm;
  kernels::PackedWeight q;  // [h * head_dim][hidden]
  kernels::PackedWeight k;  // [g * head_dim][hidden]
  kernels::PackedWeight v;  // [g * head_dim][hidden]
  kernels::PackedWeight o;  // [hidden][h * head_dim]
  std::vector<float> q_norm;
  std::vector<float> k_norm;
  kernels::ExpertWeights mlp;  // gate, up, down of this rank's inner dimension
};

struct DrafterWeights {
  kernels::PackedWeight fc;
  std::vector<float> hidden_norm;
  std::vector<float> norm;
  std::vector<DrafterLayerWeights> layers;
};

// As plan_target_weights.
void plan_drafter_weights(LoadPlan& plan, const DrafterConfig& config, const DrafterSpecs& specs,
                          const DrafterShard& shard, DrafterWeights& weights);

}  // namespace copse
