#pragma once
// Products of activations with a DeviceMatrix, through the plans of kernels/linear. A shape is
// planned at its first use; run every shape once before it is captured into a graph.
#include <cstdint>

#include "kernels/linear/linear_cuda.h"
#include "model/cuda/device_weights.h"

namespace copse {

template <class T>
struct DeviceRows {
  T* data = nullptr;
  int rows = 0;
  std::int64_t stride = 0;  // elements from one row to the next
};

// y = x W^T, or y += x W^T. x [rows][w.inputs], y [rows][w.outputs]; nothing for an empty matrix.
template <class T, class Y>
Status linear(kernels::cuda::DenseGemm& gemm, DeviceRows<const T> x, const DeviceMatrix<T>& w,
              DeviceRows<Y> y, kernels::cuda::Stream stream, bool accumulate = false) {
  if (w.outputs == 0 || x.rows == 0) return {};
  auto shape = kernels::cuda::dense_shape<T, Y>(x.rows, w.outputs, w.inputs);
  shape.x_stride = x.stride;
  shape.y_stride = y.stride;
  shape.accumulate = accumulate;
  COPSE_RETURN_IF_ERROR(gemm.prepare(shape));
  return gemm.launch(shape, x.data, w.data, y.data, stream);
}

// What the two products of a pair are, planned.
template <class T, class Y>
Result<kernels::cuda::GemmCall> planned(kernels::cuda::DenseGemm& gemm, DeviceRows<const T> x,
                                        const DeviceMatrix<T>& w, DeviceRows<Y> y, bool swiglu) {
  const int outputs = swiglu ? w.outputs / 2 : w.outputs;
  auto shape = kernels::cuda::dense_shape<T, Y>(x.rows, outputs, w.inputs);
  shape.x_stride = x.stride;
  shape.y_stride = y.stride;
  shape.swiglu = swiglu;
  COPSE_RETURN_IF_ERROR(gemm.prepare(shape));
  return kernels::cuda::GemmCall{shape, w.data, y.data};
}

// y = silu(gate) * up with gate and up the two halves of x W^T.
template <class T>
Status linear_swiglu(kernels::cuda::DenseGemm& gemm, DeviceRows<const T> x,
                     const DeviceMatrix<T>& w, DeviceRows<T> y, kernels::cuda::Stream stream) {
  COPSE_TRY(const kernels::cuda::GemmCall call, (planned<T, T>(gemm, x, w, y, true)));
  return gemm.launch(call.shape, x.data, call.weight, call.y, stream);
}

// One product a head: W [heads][outputs][inputs] as a matrix of heads * outputs rows; the head's
// part of a row of x begins at head * x_head, of y at head * y_head.
template <class T>
Status linear_heads(kernels::cuda::DenseGemm& gemm, int heads, DeviceRows<const T> x,
                    std::int64_t x_head, const DeviceMatrix<T>& w, DeviceRows<T> y,
                    std::int64_t y_head, kernels::cuda::Stream stream) {
  CHECK(heads > 0 && w.outputs % heads == 0);
  auto shape = kernels::cuda::dense_shape<T, T>(x.rows, w.outputs / heads, w.inputs);
  shape.x_stride = x.stride;
  shape.y_stride = y.stride;
  shape.batch = heads;
  shape.x_batch_stride = x_head;
  shape.w_batch_stride = static_cast<std::int64_t>(shape.outputs) * w.inputs;
  shape.y_batch_stride = y_head;
  COPSE_RETURN_IF_ERROR(gemm.prepare(shape));
  return gemm.launch(shape, x.data, w.data, y.data, stream);
}

}  // namespace copse
