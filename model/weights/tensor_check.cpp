#include "model/weights/tensor_check.h"

#include <algorithm>

#include "base/log.h"

namespace copse {

void TensorCheck::linear(const LinearSpec& spec) {
  const auto found = find_linear(checkpoint_, spec, quantization_);
  if (!found.ok()) {
    if (!error_) error_ = found.error();
    return;
  }
  if (found->codec == Codec::int4_group) {
    for (const char* part : {".weight_packed", ".weight_scale", ".weight_shape"}) {
      used_.insert(spec.name + part);
    }
    return;
  }
  used_.insert(spec.name + ".weight");
  if (found->codec == Codec::fp8_block) used_.insert(spec.name + ".weight_scale_inv");
}

void TensorCheck::vector(const VectorSpec& spec) {
  const auto found = find_vector(checkpoint_, spec);
  if (!found.ok() && !error_) error_ = found.error();
  used_.insert(spec.name);
}

Status TensorCheck::finish(const std::function<bool(const std::string&)>& known_extra) {
  if (error_) return *error_;
  std::size_t skipped = 0;
  std::string refused;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (used_.contains(name)) continue;
    if (known_extra(name)) {
      ++skipped;
    } else if (refused.empty() || name < refused) {
      refused = name;
    }
  }
  if (!refused.empty()) {
    return Error{ErrorCode::unsupported, refused, "is a tensor that this model does not have"};
  }
  if (skipped > 0) spdlog::info("skipped {} tensors that serving does not use", skipped);
  return {};
}

}  // namespace copse
