#pragma once
// The names and shapes that a DeepSeek-V2/V3 or Kimi-K2 checkpoint has, by config: nothing may be
// missing, and what is not listed here is refused unless it is of a kind known to be of no use.
#include <optional>
#include <string>
#include <vector>

#include "model/weights/stored_linear.h"

namespace copse {

struct MlpSpecs {
  LinearSpec gate;  // [inner][hidden]
  LinearSpec up;    // [inner][hidden]
  LinearSpec down;  // [hidden][inner]
};

struct AttentionSpecs {
  std::optional<LinearSpec> q_a;  // [q_lora_rank][hidden]; none: q alone
  std::optional<VectorSpec> q_a_norm;
  LinearSpec q;          // [heads * (nope + rope)][q_lora_rank or hidden]
  LinearSpec kv_a;       // [kv_lora_rank + rope][hidden]
  VectorSpec kv_a_norm;  // [kv_lora_rank]
  LinearSpec kv_b;       // [heads * (nope + value)][kv_lora_rank]
  LinearSpec o;          // [hidden][heads * value]
};

struct LayerSpecs {
  VectorSpec input_norm;
  AttentionSpecs attention;
  VectorSpec post_attention_norm;
  std::optional<MlpSpecs> dense;
  std::optional<LinearSpec> router;       // [experts][hidden]
  std::optional<VectorSpec> router_bias;  // [experts], noaux_tc
  std::vector<MlpSpecs> experts;
  std::optional<MlpSpecs> shared;
};

struct TargetSpecs {
  LinearSpec embedding;  // [vocabulary][hidden]
  std::vector<LayerSpecs> layers;
  VectorSpec norm;
  LinearSpec head;  // [vocabulary][hidden]; the embedding's tensor where tied
};

TargetSpecs target_specs(const ModelConfig& config);

// Every tensor is there with its shape, and every other tensor of the checkpoint is of a known kind
// (multi-token-prediction layers, vision tower, rotary inv_freq), which one log line counts.
Status check_target_tensors(const Checkpoint& checkpoint, const ModelConfig& config,
                            const TargetSpecs& specs);

}  // namespace copse
