#pragma once
// The fast versions of moe_experts and quantized_linear, for multiprocessors with bulk copies
// (compute capability 9.0 and later) and 200 KB of shared memory.
#include "kernels/moe_experts/moe_experts_cuda.h"
#include "kernels/moe_experts/packed_linear.h"

namespace copse::kernels::cuda {

inline constexpr int stream_shared_bytes = 227 * 1024;

// Whether this device, which is open, and this shape can use it.
bool stream_applies(const ExpertShape& shape);
Status stream_experts(const MoeExperts<Bf16>& call, Stream stream);
bool stream_applies(const PackedLinear& shape);
template <class Y>
Status stream_linear(const QuantizedLinear<Bf16, Y>& call, Stream stream);

}  // namespace copse::kernels::cuda
