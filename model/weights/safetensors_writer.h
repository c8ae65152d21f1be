#pragma once
// Writes float32 tensors as one safetensors file.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace copse {

struct FloatTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  // row-major, the product of shape
};

// Replaces the file. Error: io with the file's name.
Status write_safetensors(const std::string& path, std::span<const FloatTensor> tensors);

}  // namespace copse
