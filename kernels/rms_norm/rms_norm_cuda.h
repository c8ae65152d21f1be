#pragma once
// y[r][i] = weight[i] * (x[r][i] / sqrt(mean over i of x[r][i]^2 + eps)) on the GPU: one block a
// row, or one warp for up to 256 values. Arithmetic and weights are float32; the sum of squares has
// one order per `dim`, so a row's result does not depend on its neighbours. Weights may be read
// before the kernel in front has ended: it must not be the one that writes them.
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

// Row r, head h at x + r * x_row_stride + h * x_head_stride, `dim` values; likewise y. In place
// where x and y and their strides are the same. Strides in elements. One head for whole rows; a
// latent of kv_a is one head of a slice.
template <class X, class Y>
struct RmsNorm {
  const X* x = nullptr;
  std::int64_t x_row_stride = 0;
  std::int64_t x_head_stride = 0;
  Y* y = nullptr;
  std::int64_t y_row_stride = 0;
  std::int64_t y_head_stride = 0;
  int rows = 0;
  int heads = 1;
  int dim = 0;
  const float* weight = nullptr;  // [dim]
  float eps = 0;
};

// X, Y: float and float, float and Bf16, Bf16 and Bf16.
template <class X, class Y>
Status rms_norm(const RmsNorm<X, Y>& call, Stream stream);

// What stands between two layers, in one launch:
//   residual[r] += part[r]                          if part is given
//   features[r * feature_stride + i] = residual[r][i]   if features is given, rounded to T
//   y[r] = norm(residual[r])                        if y is given
// residual, part [rows][dim] float32, y [rows][dim] T, contiguous.
template <class T>
struct AddRmsNorm {
  float* residual = nullptr;
  const float* part = nullptr;
  T* features = nullptr;  // already at the first column of this layer's slice
  std::int64_t feature_stride = 0;
  T* y = nullptr;
  int rows = 0;
  int dim = 0;
  const float* weight = nullptr;  // [dim]
  float eps = 0;
};

template <class T>
Status add_rms_norm(const AddRmsNorm<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
