#pragma once
// What a DFlash drafter checkpoint says of itself. Published drafters keep block_size,
// mask_token_id and the target layers at the top level or inside dflash_config; some list
// aux_hidden_state_layer_ids, which count from one later.
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/types.h"
#include "model/config/model_config.h"

namespace copse {

struct DrafterConfig {
  int vocabulary = 0;
  int hidden = 0;
  int inner = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;  // bonus token included
  TokenId mask_token = 0;
  int target_layers = 0;              // layers of the target it was trained for
  std::vector<int> target_layer_ids;  // features: residual stream after these target layers
  double rms_eps = 1e-6;
  bool attention_bias = false;
  int positions_max = 0;
  // attention_factor: 1 + 0.1 ln(factor) under YaRN unless the config says otherwise, which is what
  // published drafters were trained with; a serving configuration may set it.
  RopeConfig rope;
  int sliding_window = 0;            // 0: none
  std::vector<bool> sliding_layers;  // [layers]

  int feature_width() const { return static_cast<int>(target_layer_ids.size()) * hidden; }
};

// Errors as of parse_model_config. Feature layers left out get DFlash's default spacing.
Result<DrafterConfig> parse_drafter_config(const Json& config);
Result<DrafterConfig> read_drafter_config(const std::string& folder);
// A drafter serves one kind of target: same hidden size, vocabulary and number of layers.
Status check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target);

}  // namespace copse
