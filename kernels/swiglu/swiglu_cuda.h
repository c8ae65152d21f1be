#pragma once
// out[r][i] = silu(gate[r][i]) * up[r][i] on the GPU: float32 arithmetic, rounded to T once.
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

// gate and up rows `in_stride` elements apart (a fused product writes both side by side), out rows
// `out_stride`. `out` may be the memory of gate, with equal strides. Fastest where all of it begins
// at 16 bytes.
template <class T>
struct Swiglu {
  const T* gate = nullptr;
  const T* up = nullptr;
  std::int64_t in_stride = 0;
  T* out = nullptr;
  std::int64_t out_stride = 0;
  int rows = 0;
  int columns = 0;
};

template <class T>
Status swiglu(const Swiglu<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
