#pragma once
// A checkpoint folder: model.safetensors, or the shards that model.safetensors.index.json names.
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/weights/safetensors.h"

namespace copse {

struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;

  Status read(std::uint64_t offset, std::span<std::byte> out) const {
    return file->read(*info, offset, out);
  }
};

class Checkpoint {
 public:
  // Every shard's header is read and checked; index and shards must name the same tensors. Shard
  // names with a slash or .. are refused. Errors name the file or tensor.
  static Result<Checkpoint> open(const std::string& folder);

  // nullptr if there is none.
  const StoredTensor* find(const std::string& name) const;
  const std::unordered_map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // stable addresses
  std::unordered_map<std::string, StoredTensor> tensors_;
};

}  // namespace copse
