#include "model/config/model_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "kernels/rope/rope.h"
#include "model/config/config_reader.h"
#include "model/config/rope_config.h"

namespace copse {
namespace {

constexpr int kWidthMax = 1 << 17;  // of any one dimension: bounds every product below 2^63

void read_sizes(ConfigReader& reader, ModelConfig& config) {
  config.vocabulary = reader.integer("vocab_size", 1, limits::vocabulary);
  config.hidden = reader.integer("hidden_size", 1, kWidthMax);
  config.layers = reader.integer("num_hidden_layers", 1, limits::layers);
  config.heads = reader.integer("num_attention_heads", 1, 4096);
  config.q_lora_rank = reader.integer("q_lora_rank", 0, kWidthMax, 0);
  config.kv_lora_rank = reader.integer("kv_lora_rank", 1, kWidthMax);
  config.nope_dim = reader.integer("qk_nope_head_dim", 1, 4096);
  config.rope_dim = reader.integer("qk_rope_head_dim", 2, 4096);
  config.value_dim = reader.integer("v_head_dim", 1, 4096);
  config.dense_inner = reader.integer("intermediate_size", 1, kWidthMax);
  config.positions_max = reader.integer("max_position_embeddings", 1, limits::sequence_tokens);
  config.rms_eps = reader.number("rms_norm_eps", 1e-12, 1.0, 1e-6);
  config.tied_embeddings = reader.boolean("tie_word_embeddings", false);
  config.attention_bias = reader.boolean("attention_bias", false);
  if (config.rope_dim % 2 != 0) {
    reader.fail(ErrorCode::invalid_argument, "qk_rope_head_dim", "must be even");
  }
  if (config.attention_bias) {
    reader.fail(ErrorCode::unsupported, "attention_bias", "only false is known");
  }
  if (reader.boolean("mlp_bias", false)) {
    reader.fail(ErrorCode::unsupported, "mlp_bias", "only false is known");
  }
  if (reader.text("hidden_act", "silu") != "silu") {
    reader.fail(ErrorCode::unsupported, "hidden_act", "only silu is known");
  }
}

void read_scoring(ConfigReader& reader, ModelConfig& config) {
  // Newer spellings leave both keys out: the model type then says it.
  const bool v2 = config.model_type == "deepseek_v2";
  const std::string scoring = reader.text("scoring_func", v2 ? "softmax" : "sigmoid");
  const std::string method = reader.text("topk_method", v2 ? "greedy" : "noaux_tc");
  if (scoring == "softmax") {
    config.scoring = Scoring::softmax;
  } else if (scoring != "sigmoid") {
    reader.fail(ErrorCode::unsupported, "scoring_func", "only sigmoid and softmax are known");
  }
  if (method == "greedy") {
    config.topk_method = TopkMethod::greedy;
  } else if (method == "group_limited_greedy") {
    config.topk_method = TopkMethod::group_limited_greedy;
  } else if (method != "noaux_tc") {
    reader.fail(ErrorCode::unsupported, "topk_method",
                "only greedy, group_limited_greedy and noaux_tc are known");
  }
  // The published definition of deepseek_v2 never normalises, whatever this key says.
  config.normalize_weights = reader.boolean("norm_topk_prob", !v2) && !v2;
  config.routed_scale = reader.number("routed_scaling_factor", 1e-6, 1e6, v2 ? 1.0 : 2.5);
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  config.experts = reader.integer("n_routed_experts", 0, limits::experts, 0);
  config.dense_layers = reader.integer("first_k_dense_replace", 0, limits::layers, 0);
  if (config.experts == 0 || config.dense_layers >= config.layers) {
    config.experts = 0;
    config.dense_layers = config.layers;
    return;
  }
  config.expert_inner = reader.integer("moe_intermediate_size", 1, kWidthMax);
  config.experts_per_token =
      reader.integer("num_experts_per_tok", 1, std::min(config.experts, limits::experts_per_token));
  config.shared_experts = reader.integer("n_shared_experts", 0, 64, 0);
  read_scoring(reader, config);
  if (reader.integer("moe_layer_freq", 1, limits::layers, 1) != 1) {
    reader.fail(ErrorCode::unsupported, "moe_layer_freq", "only 1 is known");
  }
  if (config.topk_method == TopkMethod::greedy) return;  // knows no groups
  const int groups = reader.integer("n_group", 1, config.experts);
  const int kept = reader.integer("topk_group", 1, groups);
  config.groups = groups;
  config.groups_per_token = kept;
  if (config.experts % groups != 0) {
    reader.fail(ErrorCode::invalid_argument, "n_group", "must divide n_routed_experts");
  } else if (config.topk_method == TopkMethod::noaux_tc && groups > 1 &&
             config.experts / groups < 2) {
    reader.fail(ErrorCode::invalid_argument, "n_group", "groups need two experts at least");
  } else if (config.experts / groups * kept < config.experts_per_token) {
    reader.fail(ErrorCode::invalid_argument, "topk_group",
                "leaves fewer experts than num_experts_per_tok");
  }
}

void read_int4(ConfigReader& part, QuantizationConfig& quantization) {
  quantization.kind = Quantization::int4_group;
  if (part.text("format", "pack-quantized") != "pack-quantized") {
    part.fail(ErrorCode::unsupported, "format", "only pack-quantized is known");
  }
  ConfigReader groups = part.object("config_groups");
  if (groups.json().size() != 1) {
    groups.fail(ErrorCode::unsupported, "", "exactly one group is known");
    part.absorb(groups);
    return;
  }
  ConfigReader group = groups.object(groups.json().begin().key());
  ConfigReader weights = group.object("weights");
  quantization.group = weights.integer("group_size", 8, 1024);
  const bool known = weights.integer("num_bits", 1, 16) == 4 &&
                     weights.boolean("symmetric", true) && weights.text("type", "int") == "int" &&
                     weights.text("strategy", "group") == "group" && !weights.has("actorder");
  if (!known || quantization.group % 8 != 0) {
    weights.fail(ErrorCode::unsupported, "",
                 "only symmetric 4-bit integers in groups of a multiple of 8 are known");
  }
  groups.absorb(weights);
  part.absorb(groups);
}

void read_quantization(ConfigReader& reader, ModelConfig& config) {
  if (!reader.has("quantization_config")) return;
  ConfigReader part = reader.object("quantization_config");
  const std::string method = part.text("quant_method", "");
  if (method == "fp8") {
    config.quantization.kind = Quantization::fp8_block;
    const std::vector<int> block = part.integers("weight_block_size", 1, kWidthMax, 2);
    if (block.size() != 2 || block[0] != block[1]) {
      part.fail(ErrorCode::unsupported, "weight_block_size", "only square blocks are known");
    } else {
      config.quantization.block = block[0];
    }
    if (part.text("fmt", "e4m3") != "e4m3") {
      part.fail(ErrorCode::unsupported, "fmt", "only e4m3 is known");
    }
  } else if (method == "compressed-tensors") {
    read_int4(part, config.quantization);
  } else {
    part.fail(ErrorCode::unsupported, "quant_method", "only fp8 and compressed-tensors are known");
  }
  reader.absorb(part);
}

std::vector<TokenId> read_end_tokens(ConfigReader& reader, int vocabulary) {
  return reader.integers("eos_token_id", 0, vocabulary - 1, limits::end_token_ids);
}

bool known_type(const std::string& type) {
  return type == "deepseek_v2" || type == "deepseek_v3" || type == "kimi_k2";
}

}  // namespace

double ModelConfig::softmax_scale() const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim()));
  if (!rope.yarn() || rope.mscale_all_dim == 0.0) return scale;
  const double mscale = kernels::yarn_mscale(rope.factor, rope.mscale_all_dim);
  return scale * mscale * mscale;
}

Result<ModelConfig> parse_model_config(const Json& json) {
  ConfigReader top(json);
  // Kimi-K2.5 and later wrap the language model beside a vision tower.
  const bool nested = top.has("text_config");
  ConfigReader reader = nested ? top.object("text_config") : top;
  ModelConfig config;
  config.tensor_prefix = nested ? "language_model." : "";
  config.model_type = reader.text("model_type");
  COPSE_RETURN_IF_ERROR(reader.status());
  if (!known_type(config.model_type)) {
    reader.fail(ErrorCode::unsupported, "model_type",
                "only deepseek_v2, deepseek_v3 and kimi_k2 are known");
  }
  COPSE_RETURN_IF_ERROR(reader.status());
  read_sizes(reader, config);
  COPSE_RETURN_IF_ERROR(reader.status());
  read_experts(reader, config);
  COPSE_RETURN_IF_ERROR(reader.status());
  config.rope = read_rope(reader, config.positions_max);
  read_quantization(reader, config);
  if (nested && !reader.has("quantization_config")) read_quantization(top, config);
  config.bos_token = reader.integer("bos_token_id", 0, config.vocabulary - 1, -1);
  config.end_tokens = read_end_tokens(reader, config.vocabulary);
  reader.absorb(top);
  COPSE_RETURN_IF_ERROR(reader.status());
  return config;
}

Result<ModelConfig> with_generation_config(ModelConfig config, const Json& generation) {
  ConfigReader reader(generation, "generation_config.");
  const std::vector<TokenId> tokens = read_end_tokens(reader, config.vocabulary);
  COPSE_RETURN_IF_ERROR(reader.status());
  if (!tokens.empty()) config.end_tokens = tokens;
  return config;
}

Result<ModelConfig> read_model_config(const std::string& folder) {
  COPSE_TRY(const Json json, read_json_file(folder + "/config.json", JsonBounds{}));
  COPSE_TRY(ModelConfig config, parse_model_config(json));
  const std::string path = folder + "/generation_config.json";
  struct stat unused;
  if (::stat(path.c_str(), &unused) != 0) return config;
  COPSE_TRY(const Json generation, read_json_file(path, JsonBounds{}));
  return with_generation_config(std::move(config), generation);
}

}  // namespace copse
