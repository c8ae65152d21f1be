#pragma once
// Who looks on while a pass is launched: for measurements, which record events between its parts.
#include <cstdint>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse {

enum class PassPart : std::uint8_t {
  rest,       // embedding, norms, rotary embedding
  dense,      // products with dense weights
  attention,  // verify_attention, its plan
  experts,    // router, routing, routed experts
  sampling,   // what follows a pass
};
inline constexpr int pass_parts = 5;

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // `part` of `layer` has just been launched; -1: of none.
  virtual Status launched(PassPart part, int layer, kernels::cuda::Stream stream) = 0;
  // The experts of a layer are chosen, ids [rows][experts_per_token] in device memory, and not used
  // yet: random weights route unlike trained ones, so a measurement may choose others.
  virtual Status routed(int layer, std::int32_t* ids, kernels::cuda::Stream stream) {
    (void)layer, (void)ids, (void)stream;
    return {};
  }
};

}  // namespace copse
