#pragma once
// y = x W^T for weights in the codecs and the layout of experts (expert_layout.h), widened in
// registers: the dense products of a quantized checkpoint. Meant for few rows; float32 sums, order
// fixed by the shape of W alone.
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/moe_experts/moe_experts_cuda.h"

namespace copse::kernels::cuda {

// W [outputs][inputs].
struct PackedLinear {
  int outputs = 0;
  int inputs = 0;
  ExpertCodec codec = ExpertCodec::fp8_block;

  constexpr expert_layout::Packed layout() const { return {codec, outputs, inputs, false}; }
  constexpr std::size_t bytes() const { return layout().bytes(); }
};

// As pack_expert and random_experts; `packed` has bytes() and begins at a multiple of 256.
Status pack_linear(const PackedLinear& shape, const StoredMatrix& stored, std::byte* packed,
                   Stream stream);
Status random_linear(const PackedLinear& shape, std::uint64_t seed, std::byte* packed,
                     Stream stream);

// T and Y are float or Bf16; where T is Bf16, y is float or Bf16, else float.
template <class T, class Y>
struct QuantizedLinear {
  const T* x = nullptr;  // [rows][inputs]
  int rows = 0;
  PackedLinear shape;
  const std::byte* packed = nullptr;
  Y* y = nullptr;  // [rows][outputs]
};

template <class T, class Y>
Status quantized_linear(const QuantizedLinear<T, Y>& call, Stream stream);

namespace portable {
// The same by plain loops, for every codec and dimension.
template <class T, class Y>
Status quantized_linear(const QuantizedLinear<T, Y>& call, Stream stream);
}  // namespace portable

}  // namespace copse::kernels::cuda
