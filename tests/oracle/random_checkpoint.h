#pragma once
// Checkpoints of any shape with random weights, in the published names and codecs: for shapes that
// no oracle has. What they should answer is what one rank answers.
#include <string>

#include "base/json.h"

namespace copse::oracle {

// A small DeepSeek-V3 config; tests change its keys.
Json small_config();

// Writes config.json and model.safetensors into `folder`.
void write_random_checkpoint(const std::string& folder, const Json& config);

}  // namespace copse::oracle
