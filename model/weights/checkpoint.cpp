#include "model/weights/checkpoint.h"

#include <sys/stat.h>

#include <set>

#include "base/json.h"
#include "base/limits.h"

namespace copse {
namespace {

bool exists(const std::string& path) {
  struct stat unused;
  return ::stat(path.c_str(), &unused) == 0;
}

// tensor name -> shard file name
using WeightMap = std::unordered_map<std::string, std::string>;

constexpr auto kIndex = "model.safetensors.index.json";

Result<WeightMap> read_index(const std::string& path) {
  const auto wrong = [](const char* message) {
    return Error{ErrorCode::malformed, kIndex, message};
  };
  JsonBounds bounds;
  bounds.bytes = limits::safetensors_header_bytes;
  bounds.nodes = 4 * static_cast<std::size_t>(limits::safetensors_tensors);
  COPSE_TRY(const Json json, read_json_file(path, bounds));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) return wrong("weight_map is not an object");
  if (map->size() > static_cast<std::size_t>(limits::safetensors_tensors)) {
    return wrong("weight_map has too many tensors");
  }
  WeightMap result;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return wrong("a shard's name is not a string");
    const auto& name = file.get_ref<const std::string&>();
    // A shard lies in the checkpoint's own folder, whatever the index says.
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find("..") != std::string::npos || name.find('\0') != std::string::npos) {
      return wrong("a shard's name leaves the folder");
    }
    result.emplace(tensor, name);
  }
  return result;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  WeightMap index;
  std::set<std::string> names = {"model.safetensors"};
  const bool sharded = exists(folder + "/" + kIndex);
  if (sharded) {
    COPSE_TRY(index, read_index(folder + "/" + kIndex));
    names.clear();
    for (const auto& [tensor, file] : index) names.insert(file);
    if (names.size() > static_cast<std::size_t>(limits::weight_shards)) {
      return Error{ErrorCode::resource_exhausted, kIndex, "names too many shards"};
    }
  }
  Checkpoint checkpoint;
  for (const std::string& name : names) {
    COPSE_TRY(SafetensorsFile file, SafetensorsFile::open(folder + "/" + name));
    checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    const SafetensorsFile& kept = *checkpoint.files_.back();
    for (const auto& [tensor, info] : kept.tensors()) {
      const auto listed = index.find(tensor);
      if (sharded && (listed == index.end() || listed->second != name)) {
        return Error{ErrorCode::malformed, tensor, "is in a shard that the index does not name"};
      }
      checkpoint.tensors_.emplace(tensor, StoredTensor{&kept, &info});
    }
  }
  for (const auto& [tensor, file] : index) {
    if (!checkpoint.tensors_.contains(tensor)) {
      return Error{ErrorCode::not_found, tensor, "is not in the shard that the index names"};
    }
  }
  return checkpoint;
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace copse
