#include <type_traits>

#include "kernels/moe_experts/moe_dispatch.h"
#include "kernels/moe_experts/moe_stream.h"
#include "kernels/moe_experts/packed_linear.h"

namespace copse::kernels::cuda {

std::size_t moe_experts_workspace_bytes(const ExpertShape& shape, int rows, int experts_per_token) {
  return moe_workspace_parts(shape, rows, experts_per_token).bytes;
}

std::size_t moe_experts_state_bytes() {
  return moe_workspace_parts({}, 0, 0).activations;
}

template <class T>
Status moe_experts(const MoeExperts<T>& call, Stream stream) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (stream_applies(call.shape)) return stream_experts(call, stream);
  }
  return portable::moe_experts(call, stream);
}

template Status moe_experts(const MoeExperts<float>&, Stream);
template Status moe_experts(const MoeExperts<Bf16>&, Stream);

template <class T, class Y>
Status quantized_linear(const QuantizedLinear<T, Y>& call, Stream stream) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (stream_applies(call.shape)) return stream_linear(call, stream);
  }
  return portable::quantized_linear(call, stream);
}

template Status quantized_linear(const QuantizedLinear<float, float>&, Stream);
template Status quantized_linear(const QuantizedLinear<Bf16, float>&, Stream);
template Status quantized_linear(const QuantizedLinear<Bf16, Bf16>&, Stream);

}  // namespace copse::kernels::cuda
