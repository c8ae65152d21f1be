#include "model/dflash/drafter_weights.h"

#include "model/weights/tensor_check.h"

namespace copse {
namespace {

Range all(int count) {
  return {0, count};
}
Range scaled(Range range, int by) {
  return {range.begin * by, range.end * by};
}

}  // namespace

DrafterSpecs drafter_specs(const DrafterConfig& config) {
  DrafterSpecs specs;
  const int hidden = config.hidden;
  const int q_width = config.heads * config.head_dim;
  const int kv_width = config.kv_heads * config.head_dim;
  specs.fc = {"fc", hidden, config.feature_width(), false};
  specs.hidden_norm = {"hidden_norm.weight", hidden};
  specs.norm = {"norm.weight", hidden};
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    DrafterLayerSpecs part;
    part.input_norm = {prefix + "input_layernorm.weight", hidden};
    part.post_attention_norm = {prefix + "post_attention_layernorm.weight", hidden};
    part.q = {prefix + "self_attn.q_proj", q_width, hidden, false};
    part.k = {prefix + "self_attn.k_proj", kv_width, hidden, false};
    part.v = {prefix + "self_attn.v_proj", kv_width, hidden, false};
    part.o = {prefix + "self_attn.o_proj", hidden, q_width, false};
    part.q_norm = {prefix + "self_attn.q_norm.weight", config.head_dim};
    part.k_norm = {prefix + "self_attn.k_norm.weight", config.head_dim};
    part.gate = {prefix + "mlp.gate_proj", config.inner, hidden, false};
    part.up = {prefix + "mlp.up_proj", config.inner, hidden, false};
    part.down = {prefix + "mlp.down_proj", hidden, config.inner, false};
    specs.layers.push_back(std::move(part));
  }
  return specs;
}

Status check_drafter_tensors(const Checkpoint& checkpoint, const DrafterSpecs& specs) {
  TensorCheck check(checkpoint, {});
  check.linear(specs.fc);
  check.vector(specs.hidden_norm);
  check.vector(specs.norm);
  for (const DrafterLayerSpecs& layer : specs.layers) {
    for (const LinearSpec* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      check.linear(*linear);
    }
    for (const VectorSpec* vector :
         {&layer.input_norm, &layer.post_attention_norm, &layer.q_norm, &layer.k_norm}) {
      check.vector(*vector);
    }
  }
  return check.finish([](const std::string& name) {
    return name == "embed_tokens.weight" || name == "lm_head.weight" ||
           name.ends_with("rotary_emb.inv_freq");
  });
}

DrafterShard shard_drafter(const DrafterConfig& config, const Shard& shard) {
  constexpr std::uint64_t kReplicatedBytes = 64u << 20;
  DrafterShard result;
  const int per_kv = config.heads / config.kv_heads;
  const int world = shard.world_size;
  if (config.heads % world == 0 && (config.kv_heads % world == 0 || world % config.kv_heads == 0)) {
    result.heads = split_heads(config.heads, config.head_dim, shard);
    const Range heads = result.heads.part;
    result.kv_heads = {heads.begin / per_kv, (heads.end + per_kv - 1) / per_kv};
  } else {  // whole groups, unevenly
    result.kv_heads = even_part(config.kv_heads, shard);
    result.heads = {scaled(result.kv_heads, per_kv), 1};
  }
  result.inner = split_sum(config.inner, shard);
  const std::uint64_t fc_bytes = 2 * static_cast<std::uint64_t>(config.hidden) *
                                 static_cast<std::uint64_t>(config.feature_width());
  result.features = fc_bytes <= kReplicatedBytes ? SplitSum{all(config.feature_width()), 1}
                                                 : split_sum(config.feature_width(), shard);
  return result;
}

void plan_drafter_weights(LoadPlan& plan, const DrafterConfig& config, const DrafterSpecs& specs,
                          const DrafterShard& shard, DrafterWeights& weights) {
  const Range hidden = all(config.hidden);
  const Range q = scaled(shard.heads.part, config.head_dim);
  const Range kv = scaled(shard.kv_heads, config.head_dim);
  const Range inner = shard.inner.part;
  plan.packed(specs.fc, hidden, shard.features.part, weights.fc);
  plan.vector(specs.hidden_norm, weights.hidden_norm);
  plan.vector(specs.norm, weights.norm);
  weights.layers.resize(specs.layers.size());
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    const DrafterLayerSpecs& from = specs.layers[i];
    DrafterLayerWeights& layer = weights.layers[i];
    plan.vector(from.input_norm, layer.input_norm);
    plan.vector(from.post_attention_norm, layer.post_attention_norm);
    plan.packed(from.q, q, hidden, layer.q);
    plan.packed(from.k, kv, hidden, layer.k);
    plan.packed(from.v, kv, hidden, layer.v);
    plan.packed(from.o, hidden, q, layer.o);
    plan.vector(from.q_norm, layer.q_norm);
    plan.vector(from.k_norm, layer.k_norm);
    plan.packed(from.gate, inner, hidden, layer.mlp.gate);
    plan.packed(from.up, inner, hidden, layer.mlp.up);
    plan.packed(from.down, hidden, inner, layer.mlp.down);
  }
}

}  // namespace copse
