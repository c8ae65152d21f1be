#pragma once
// The rotary part of a config.json, shared by target and drafter: rope_theta and rope_scaling
// (older spelling) or rope_parameters (newer).
#include "model/config/config_reader.h"
#include "model/config/model_config.h"

namespace copse {

// attention_factor: an explicit one wins; then mscale over mscale_all_dim when both are given and
// not zero; then kernels::yarn_mscale(factor, 1). Errors are left in `reader`.
RopeConfig read_rope(ConfigReader& reader, int positions_max);

}  // namespace copse
