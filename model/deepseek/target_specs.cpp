#include "model/deepseek/target_specs.h"

#include <charconv>
#include <string_view>

#include "model/weights/tensor_check.h"

namespace copse {
namespace {

MlpSpecs mlp_specs(const std::string& prefix, int hidden, int inner) {
  return {{prefix + "gate_proj", inner, hidden, true},
          {prefix + "up_proj", inner, hidden, true},
          {prefix + "down_proj", hidden, inner, true}};
}

AttentionSpecs attention_specs(const ModelConfig& config, const std::string& prefix) {
  AttentionSpecs specs;
  const int q_rows = config.heads * config.head_dim();
  if (config.q_lora_rank > 0) {
    specs.q_a = LinearSpec{prefix + "q_a_proj", config.q_lora_rank, config.hidden, true};
    specs.q_a_norm = VectorSpec{prefix + "q_a_layernorm.weight", config.q_lora_rank};
    specs.q = {prefix + "q_b_proj", q_rows, config.q_lora_rank, true};
  } else {
    specs.q = {prefix + "q_proj", q_rows, config.hidden, true};
  }
  specs.kv_a = {prefix + "kv_a_proj_with_mqa", config.latent_width(), config.hidden, true};
  specs.kv_a_norm = {prefix + "kv_a_layernorm.weight", config.kv_lora_rank};
  specs.kv_b = {prefix + "kv_b_proj", config.heads * (config.nope_dim + config.value_dim),
                config.kv_lora_rank, true};
  specs.o = {prefix + "o_proj", config.hidden, config.heads * config.value_dim, true};
  return specs;
}

LayerSpecs layer_specs(const ModelConfig& config, int layer) {
  const std::string prefix = config.tensor_prefix + "model.layers." + std::to_string(layer) + ".";
  LayerSpecs specs;
  specs.input_norm = {prefix + "input_layernorm.weight", config.hidden};
  specs.attention = attention_specs(config, prefix + "self_attn.");
  specs.post_attention_norm = {prefix + "post_attention_layernorm.weight", config.hidden};
  if (!config.is_moe(layer)) {
    specs.dense = mlp_specs(prefix + "mlp.", config.hidden, config.dense_inner);
    return specs;
  }
  specs.router = LinearSpec{prefix + "mlp.gate", config.experts, config.hidden, false};
  if (config.topk_method == TopkMethod::noaux_tc) {
    specs.router_bias = VectorSpec{prefix + "mlp.gate.e_score_correction_bias", config.experts};
  }
  for (int e = 0; e < config.experts; ++e) {
    specs.experts.push_back(mlp_specs(prefix + "mlp.experts." + std::to_string(e) + ".",
                                      config.hidden, config.expert_inner));
  }
  if (config.shared_experts > 0) {
    specs.shared = mlp_specs(prefix + "mlp.shared_experts.", config.hidden, config.shared_inner());
  }
  return specs;
}

// "model.layers.61.…" of a model with 61 layers: a multi-token-prediction module.
bool is_beyond_last_layer(std::string_view name, const ModelConfig& config) {
  const std::string prefix = config.tensor_prefix + "model.layers.";
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
         layer >= config.layers;
}

bool is_known_extra(const std::string& name, const ModelConfig& config) {
  if (is_beyond_last_layer(name, config)) return true;
  for (const char* tower : {"vision_tower.", "mm_projector.", "multi_modal_projector."}) {
    if (name.starts_with(tower)) return true;
  }
  return name.ends_with("rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == config.tensor_prefix + "lm_head.weight");
}

void check_mlp(TensorCheck& check, const MlpSpecs& specs) {
  check.linear(specs.gate);
  check.linear(specs.up);
  check.linear(specs.down);
}

void check_layer(TensorCheck& check, const LayerSpecs& layer) {
  check.vector(layer.input_norm);
  const AttentionSpecs& attention = layer.attention;
  if (attention.q_a) check.linear(*attention.q_a);
  if (attention.q_a_norm) check.vector(*attention.q_a_norm);
  check.linear(attention.q);
  check.linear(attention.kv_a);
  check.vector(attention.kv_a_norm);
  check.linear(attention.kv_b);
  check.linear(attention.o);
  check.vector(layer.post_attention_norm);
  if (layer.dense) check_mlp(check, *layer.dense);
  if (layer.router) check.linear(*layer.router);
  if (layer.router_bias) check.vector(*layer.router_bias);
  for (const MlpSpecs& expert : layer.experts) check_mlp(check, expert);
  if (layer.shared) check_mlp(check, *layer.shared);
}

}  // namespace

TargetSpecs target_specs(const ModelConfig& config) {
  TargetSpecs specs;
  const std::string& prefix = config.tensor_prefix;
  specs.embedding = {prefix + "model.embed_tokens", config.vocabulary, config.hidden, false};
  for (int layer = 0; layer < config.layers; ++layer) {
    specs.layers.push_back(layer_specs(config, layer));
  }
  specs.norm = {prefix + "model.norm.weight", config.hidden};
  specs.head = specs.embedding;
  if (!config.tied_embeddings) specs.head.name = prefix + "lm_head";
  return specs;
}

Status check_target_tensors(const Checkpoint& checkpoint, const ModelConfig& config,
                            const TargetSpecs& specs) {
  TensorCheck check(checkpoint, config.quantization);
  check.linear(specs.embedding);
  for (const LayerSpecs& layer : specs.layers) check_layer(check, layer);
  check.vector(specs.norm);
  check.linear(specs.head);
  return check.finish([&](const std::string& name) { return is_known_extra(name, config); });
}

}  // namespace copse
