#pragma once
// Rotary position embedding on the GPU, in the same float32 steps as rope.h: angles once a step for
// all rows, applied in every layer.
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/rope/rope.h"

namespace copse::kernels::cuda {

// angles[row]: dim / 2 cosines, then dim / 2 sines, both times attention_factor. [rows][dim].
// A position below 0 (padding) is taken as 0.
struct RopeAngles {
  const float* inv_freq = nullptr;          // [dim / 2]
  const std::int32_t* positions = nullptr;  // [rows]
  float attention_factor = 1.0f;
  int rows = 0;
  int dim = 0;  // even
  float* angles = nullptr;
};

Status rope_angles(const RopeAngles& call, Stream stream);

// Head h of row r at x + r * row_stride + h * head_stride, `dim` values, rotated in place. Strides
// in elements. T: float or Bf16, rounded once after the rotation.
template <class T>
struct Rope {
  T* x = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
  int rows = 0;
  int heads = 1;
  int dim = 0;
  RopePairs pairs = RopePairs::interleaved;
  const float* angles = nullptr;  // [rows][dim]
};

template <class T>
Status rope(const Rope<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
