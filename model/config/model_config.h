#pragma once
// What a target checkpoint says of itself: config.json of DeepSeek-V2, DeepSeek-V3 and Kimi-K2,
// in the older (rope_theta, rope_scaling) and the newer (rope_parameters) spelling, at the top or
// inside text_config. Every number is bounded here; a model built from it never checks again.
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/types.h"

namespace copse {

// Rotary embedding. YaRN as in arXiv 2309.00071; factor 1 means none.
struct RopeConfig {
  double theta = 10000.0;
  double factor = 1.0;
  int original_positions = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  // Multiplies cos and sin. For a target: mscale(factor, mscale) / mscale(factor, mscale_all_dim).
  double attention_factor = 1.0;

  // Rotates the pairs (2i, 2i + 1); otherwise (i, i + dim / 2).
  bool interleaved = true;

  bool yarn() const { return factor > 1.0; }
  bool operator==(const RopeConfig&) const = default;
};

enum class Scoring : std::uint8_t { sigmoid, softmax };
enum class TopkMethod : std::uint8_t {
  greedy,                // best experts over all
  group_limited_greedy,  // groups ranked by their best expert, then the best experts inside
  noaux_tc,              // as above on scores + correction bias, groups ranked by their best two
};
enum class Quantization : std::uint8_t { none, fp8_block, int4_group };

struct QuantizationConfig {
  Quantization kind = Quantization::none;
  int block = 128;  // fp8_block: rows and columns of one scale
  int group = 32;   // int4_group: columns of one scale
  bool operator==(const QuantizationConfig&) const = default;
};

struct ModelConfig {
  std::string model_type;     // of the language model: deepseek_v2, deepseek_v3, kimi_k2
  std::string tensor_prefix;  // "" or "language_model."
  int vocabulary = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int q_lora_rank = 0;   // 0: one q_proj
  int kv_lora_rank = 0;  // the latent
  int nope_dim = 0;      // per head, of queries and keys
  int rope_dim = 0;
  int value_dim = 0;
  int dense_layers = 0;  // the first so many layers have a dense MLP
  int dense_inner = 0;
  int expert_inner = 0;
  int experts = 0;  // 0: every layer is dense
  int experts_per_token = 0;
  int shared_experts = 0;
  int groups = 1;
  int groups_per_token = 1;
  Scoring scoring = Scoring::sigmoid;
  TopkMethod topk_method = TopkMethod::noaux_tc;
  bool normalize_weights = true;
  double routed_scale = 1.0;
  double rms_eps = 1e-6;
  double lora_rms_eps = 1e-6;  // of q_a_layernorm and kv_a_layernorm, whatever rms_norm_eps says
  bool tied_embeddings = false;
  bool attention_bias = false;  // on q_a_proj, kv_a_proj_with_mqa and o_proj
  int positions_max = 0;
  RopeConfig rope;
  QuantizationConfig quantization;
  std::vector<TokenId> end_tokens;  // eos_token_id of config.json, replaced by generation_config's
  TokenId bos_token = -1;           // -1: none

  int head_dim() const { return nope_dim + rope_dim; }
  int latent_width() const { return kv_lora_rank + rope_dim; }
  bool is_moe(int layer) const { return experts > 0 && layer >= dense_layers; }
  int shared_inner() const { return expert_inner * shared_experts; }
  // Of query-key products: head_dim^-0.5, times YaRN's mscale_all_dim correction squared.
  double softmax_scale() const;
};

// Errors name the key: invalid_argument for a value out of bounds, malformed for a wrong JSON
// type, unsupported for a feature copse lacks, not_found for a missing key.
Result<ModelConfig> parse_model_config(const Json& config);
// Takes eos_token_id of generation_config.json (a number or a list) into `config`.
Result<ModelConfig> with_generation_config(ModelConfig config, const Json& generation);
// Reads config.json and, if there is one, generation_config.json of a checkpoint folder.
Result<ModelConfig> read_model_config(const std::string& folder);

}  // namespace copse
