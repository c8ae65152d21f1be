#include "model/config/drafter_config.h"

#include <algorithm>
#include <cmath>

#include "kernels/rope/rope.h"
#include "model/config/config_reader.h"
#include "model/config/rope_config.h"

namespace copse {
namespace {

constexpr int kWidthMax = 1 << 17;

// Published drafters put these at the top level or inside dflash_config.
ConfigReader& holder(ConfigReader& top, ConfigReader& part, std::string_view key) {
  return part.has(key) ? part : top;
}

// Spread over the target's depth: DFlash's own default.
std::vector<int> default_layer_ids(int target_layers, int draft_layers) {
  if (draft_layers == 1) return {target_layers / 2};
  std::vector<int> ids;
  for (int i = 0; i < draft_layers; ++i) {
    const double at = 1.0 + static_cast<double>(i) * (target_layers - 4) / (draft_layers - 1);
    ids.push_back(static_cast<int>(std::nearbyint(at)));  // halves to even
  }
  return ids;
}

void read_target_layers(ConfigReader& top, ConfigReader& part, DrafterConfig& config) {
  constexpr auto kKey = "target_layer_ids";
  constexpr auto kShifted = "aux_hidden_state_layer_ids";  // counts the embedding as 0
  const auto read = [&](const char* key, int shift) {
    ConfigReader& from = holder(top, part, key);
    std::vector<int> ids =
        from.integers(key, shift, config.target_layers - 1 + shift, limits::target_feature_layers);
    for (int& id : ids) id -= shift;
    return ids;
  };
  config.target_layer_ids = read(kKey, 0);
  if (config.target_layer_ids.empty()) config.target_layer_ids = read(kShifted, 1);
  if (config.target_layer_ids.empty()) {
    config.target_layer_ids = default_layer_ids(config.target_layers, config.layers);
  }
  for (std::size_t i = 0; i < config.target_layer_ids.size(); ++i) {
    const int id = config.target_layer_ids[i];
    if (id < 0 || id >= config.target_layers || (i > 0 && id <= config.target_layer_ids[i - 1])) {
      top.fail(ErrorCode::invalid_argument, kKey, "must ascend inside the target's layers");
    }
  }
}

void read_sliding(ConfigReader& top, DrafterConfig& config) {
  config.sliding_layers.assign(static_cast<std::size_t>(config.layers), false);
  config.sliding_window = top.integer("sliding_window", 0, limits::sequence_tokens, 0);
  if (top.has("layer_types")) {
    const Json& types = top.json()["layer_types"];
    if (!types.is_array() || types.size() != config.sliding_layers.size()) {
      top.fail(ErrorCode::malformed, "layer_types", "must name every layer");
      return;
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "sliding_attention") {
        config.sliding_layers[i] = true;
      } else if (types[i] != "full_attention") {
        top.fail(ErrorCode::unsupported, "layer_types",
                 "only full_attention and sliding_attention are known");
      }
    }
  } else if (top.boolean("use_sliding_window", false)) {
    const int first = top.integer("max_window_layers", 0, limits::layers, 0);
    for (int i = first; i < config.layers; ++i) {
      config.sliding_layers[static_cast<std::size_t>(i)] = true;
    }
  }
  for (const bool sliding : config.sliding_layers) {
    if (sliding && config.sliding_window == 0) {
      top.fail(ErrorCode::not_found, "sliding_window", "is missing");
    }
  }
}

void read_sizes(ConfigReader& top, DrafterConfig& config) {
  config.vocabulary = top.integer("vocab_size", 1, limits::vocabulary);
  config.hidden = top.integer("hidden_size", 1, kWidthMax);
  config.inner = top.integer("intermediate_size", 1, kWidthMax);
  config.layers = top.integer("num_hidden_layers", 1, limits::layers);
  config.heads = top.integer("num_attention_heads", 1, 4096);
  config.kv_heads = top.integer("num_key_value_heads", 1, config.heads, config.heads);
  config.head_dim =
      top.integer("head_dim", 2, 4096, std::max(2, config.hidden / std::max(1, config.heads)));
  config.target_layers = top.integer("num_target_layers", 1, limits::layers);
  config.positions_max = top.integer("max_position_embeddings", 1, limits::sequence_tokens);
  config.rms_eps = top.number("rms_norm_eps", 1e-12, 1.0, 1e-6);
  if (config.heads % config.kv_heads != 0) {
    top.fail(ErrorCode::invalid_argument, "num_key_value_heads", "must divide num_attention_heads");
  }
  if (config.head_dim % 2 != 0) top.fail(ErrorCode::invalid_argument, "head_dim", "must be even");
  if (top.boolean("attention_bias", false)) {
    top.fail(ErrorCode::unsupported, "attention_bias", "only false is known");
  }
  if (top.text("hidden_act", "silu") != "silu") {
    top.fail(ErrorCode::unsupported, "hidden_act", "only silu is known");
  }
}

}  // namespace

Result<DrafterConfig> parse_drafter_config(const Json& json) {
  ConfigReader top(json);
  ConfigReader part = top.object("dflash_config");
  DrafterConfig config;
  read_sizes(top, config);
  COPSE_RETURN_IF_ERROR(top.status());
  config.block_size = holder(top, part, "block_size").integer("block_size", 2, limits::draft_block);
  config.mask_token =
      holder(top, part, "mask_token_id").integer("mask_token_id", 0, config.vocabulary - 1);
  read_target_layers(top, part, config);
  read_sliding(top, config);
  config.rope = read_rope(top, config.positions_max);
  config.rope.interleaved = false;  // Qwen3's layout, whatever the target's is
  const char* rope_key = top.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (config.rope.yarn() && !top.object(rope_key).has("attention_factor")) {
    config.rope.attention_factor = kernels::yarn_mscale(config.rope.factor, 1.0);
  }
  top.absorb(part);
  COPSE_RETURN_IF_ERROR(top.status());
  return config;
}

Result<DrafterConfig> read_drafter_config(const std::string& folder) {
  COPSE_TRY(const Json json, read_json_file(folder + "/config.json", JsonBounds{}));
  return parse_drafter_config(json);
}

Status check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target) {
  const auto refuse = [](const char* key) {
    return Error{ErrorCode::invalid_argument, key, "of the drafter is not the target's"};
  };
  if (drafter.hidden != target.hidden) return refuse("hidden_size");
  if (drafter.vocabulary != target.vocabulary) return refuse("vocab_size");
  if (drafter.target_layers != target.layers) return refuse("num_target_layers");
  return {};
}

}  // namespace copse
