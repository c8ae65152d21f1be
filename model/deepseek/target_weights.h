#pragma once
// One rank's weights of the target, packed for kernels/linear.
#include <vector>

#include "kernels/moe_experts/moe_experts.h"
#include "model/deepseek/target_shard.h"
#include "model/deepseek/target_specs.h"
#include "model/token_tables.h"
#include "model/weights/load_plan.h"

namespace copse {

using kernels::PackedWeight;
using MlpWeights = kernels::ExpertWeights;  // gate, up, down of this rank's inner dimension

// h = heads of this rank. kv_b_proj never exists as such: per head its key rows become
// absorb_key [latent][nope] (a query in latent space), its value rows absorb_value [value][latent].
struct AttentionWeights {
  PackedWeight q_a;  // [q_lora_rank][hidden], replicated; empty without query LoRA
  std::vector<float> q_a_norm;
  PackedWeight q;     // [h * (nope + rope)][q_lora_rank or hidden]
  PackedWeight kv_a;  // [latent + rope][hidden], replicated
  std::vector<float> kv_a_norm;
  std::vector<PackedWeight> absorb_key;    // [h]
  std::vector<PackedWeight> absorb_value;  // [h]
  PackedWeight o;                          // [hidden][h * value]
};

struct LayerWeights {
  std::vector<float> input_norm;
  AttentionWeights attention;
  std::vector<float> post_attention_norm;
  MlpWeights dense;     // dense layers
  PackedWeight router;  // layers of experts from here on
  std::vector<float> router_bias;
  std::vector<MlpWeights> experts;  // held by this rank
  MlpWeights shared;
};

struct TargetWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> norm;
};

// Sizes `weights` and adds every slice of it to `plan`; the weights must stay where they are until
// the plan has run.
void plan_target_weights(LoadPlan& plan, const ModelConfig& config, const TargetSpecs& specs,
                         const TargetShard& shard, TargetWeights& weights);

}  // namespace copse
