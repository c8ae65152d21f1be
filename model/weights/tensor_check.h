#pragma once
// The one pass over a checkpoint's names: what a model needs is there, what it does not need is
// known to be of no use.
#include <functional>
#include <string>
#include <unordered_set>

#include "model/weights/stored_linear.h"

namespace copse {

class TensorCheck {
 public:
  TensorCheck(const Checkpoint& checkpoint, const QuantizationConfig& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  void linear(const LinearSpec& spec);
  void vector(const VectorSpec& spec);
  // Call last. `known_extra` says of a tensor that no call named whether it may be skipped; the
  // first that may not is an unsupported error with its name.
  Status finish(const std::function<bool(const std::string&)>& known_extra);

 private:
  const Checkpoint& checkpoint_;
  QuantizationConfig quantization_;
  std::unordered_set<std::string> used_;
  std::optional<Error> error_;
};

}  // namespace copse
