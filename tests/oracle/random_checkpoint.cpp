#include "tests/oracle/random_checkpoint.h"

#include <fstream>
#include <random>

#include "model/deepseek/target_specs.h"
#include "model/weights/test_checkpoint.h"

namespace copse::oracle {
namespace {

class RandomWriter {
 public:
  explicit RandomWriter(const QuantizationConfig& quantization) : quantization_(quantization) {}

  void linear(const LinearSpec& spec) {
    const bool int4 = quantization_.kind == Quantization::int4_group &&
                      spec.name.find(".experts.") != std::string::npos;
    if (int4) return this->int4(spec);
    if (spec.quantizable && quantization_.kind == Quantization::fp8_block) return fp8(spec);
    writer_.add(spec.name + ".weight", "BF16", {spec.rows, spec.columns},
                bf16(spec.rows * spec.columns, 0.0f, 1.0f / std::sqrt(width(spec))));
  }
  void vector(const VectorSpec& spec, float mean) {
    writer_.add(spec.name, "BF16", {spec.size}, bf16(spec.size, mean, 0.1f));
  }
  void mlp(const MlpSpecs& specs) {
    linear(specs.gate);
    linear(specs.up);
    linear(specs.down);
  }
  std::string bytes() const { return writer_.bytes(); }

 private:
  static float width(const LinearSpec& spec) { return static_cast<float>(spec.columns); }

  std::vector<Bf16> bf16(int count, float mean, float spread) {
    std::normal_distribution<float> normal(mean, spread);
    std::vector<Bf16> values(static_cast<std::size_t>(count));
    for (Bf16& value : values) value = to_bf16(normal(random_));
    return values;
  }
  void fp8(const LinearSpec& spec) {
    std::vector<std::uint8_t> values(static_cast<std::size_t>(spec.rows * spec.columns));
    for (auto& value : values) {
      value = static_cast<std::uint8_t>(random_() % 0x50 | (random_() % 2) << 7);  // up to 4
    }
    const int rows = (spec.rows + quantization_.block - 1) / quantization_.block;
    const int columns = (spec.columns + quantization_.block - 1) / quantization_.block;
    std::vector<float> scales(static_cast<std::size_t>(rows * columns));
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    for (float& scale : scales) scale = uniform(random_) / std::sqrt(width(spec));
    writer_.add(spec.name + ".weight", "F8_E4M3", {spec.rows, spec.columns}, values);
    writer_.add(spec.name + ".weight_scale_inv", "F32", {rows, columns}, scales);
  }
  void int4(const LinearSpec& spec) {
    std::vector<std::uint32_t> packed(static_cast<std::size_t>(spec.rows * spec.columns / 8));
    for (auto& word : packed) word = static_cast<std::uint32_t>(random_());
    const int groups = (spec.columns + quantization_.group - 1) / quantization_.group;
    writer_.add(spec.name + ".weight_packed", "I32", {spec.rows, spec.columns / 8}, packed);
    writer_.add(spec.name + ".weight_scale", "BF16", {spec.rows, groups},
                bf16(spec.rows * groups, 0.2f / std::sqrt(width(spec)), 0.01f));
    writer_.add<std::int32_t>(spec.name + ".weight_shape", "I32", {2}, {spec.rows, spec.columns});
  }

  QuantizationConfig quantization_;
  testing::CheckpointWriter writer_;
  std::mt19937_64 random_{7};
};

void write_layer(RandomWriter& writer, const LayerSpecs& layer) {
  writer.vector(layer.input_norm, 1.0f);
  writer.vector(layer.post_attention_norm, 1.0f);
  const AttentionSpecs& attention = layer.attention;
  if (attention.q_a) writer.linear(*attention.q_a);
  if (attention.q_a_norm) writer.vector(*attention.q_a_norm, 1.0f);
  writer.linear(attention.q);
  writer.linear(attention.kv_a);
  writer.vector(attention.kv_a_norm, 1.0f);
  writer.linear(attention.kv_b);
  writer.linear(attention.o);
  if (layer.dense) writer.mlp(*layer.dense);
  if (layer.router) writer.linear(*layer.router);
  if (layer.router_bias) writer.vector(*layer.router_bias, 0.0f);
  for (const MlpSpecs& expert : layer.experts) writer.mlp(expert);
  if (layer.shared) writer.mlp(*layer.shared);
}

}  // namespace

Json small_config() {
  return Json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 77, "hidden_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 8, "q_lora_rank": 20, "kv_lora_rank": 40, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 6, "v_head_dim": 10, "intermediate_size": 40,
    "moe_intermediate_size": 16, "n_routed_experts": 16, "num_experts_per_tok": 3,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 1.5, "max_position_embeddings": 1024,
    "rope_theta": 10000})");
}

void write_random_checkpoint(const std::string& folder, const Json& json) {
  const auto config = parse_model_config(json);
  CHECK(config.ok());
  const TargetSpecs specs = target_specs(*config);
  RandomWriter writer(config->quantization);
  writer.linear(specs.embedding);
  for (const LayerSpecs& layer : specs.layers) write_layer(writer, layer);
  writer.vector(specs.norm, 1.0f);
  if (!config->tied_embeddings) writer.linear(specs.head);
  std::ofstream(folder + "/config.json") << json.dump();
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << writer.bytes();
}

}  // namespace copse::oracle
