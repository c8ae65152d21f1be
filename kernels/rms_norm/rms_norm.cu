#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int warp_dim_max = 256;  // up to here a warp takes a row, eight rows a block
constexpr int warps_per_block = 8;
constexpr int row_threads = 512;

// Sum over the block's threads, on every thread. `partials` holds 32 floats, used once.
__device__ float block_sum(float value, float* partials) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum(lane < warps ? partials[lane] : 0.0f);
}

__device__ float norm_scale(float square_sum, int dim, float eps) {
  return 1.0f / sqrtf(square_sum / static_cast<float>(dim) + eps);
}

template <class X, class Y>
__global__ void __launch_bounds__(warps_per_block * 32) warp_norm_kernel(RmsNorm<X, Y> call) {
  let_next_start();
  wait_for_previous();
  const int index = static_cast<int>(blockIdx.x) * warps_per_block + static_cast<int>(threadIdx.y);
  if (index >= call.rows * call.heads) return;
  const std::int64_t row = index / call.heads;
  const std::int64_t head = index % call.heads;
  const X* x = call.x + row * call.x_row_stride + head * call.x_head_stride;
  Y* y = call.y + row * call.y_row_stride + head * call.y_head_stride;
  float values[warp_dim_max / 32];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < warp_dim_max / 32; ++j) {
    const int i = j * 32 + static_cast<int>(threadIdx.x);
    values[j] = i < call.dim ? to_float(x[i]) : 0.0f;
    sum = fmaf(values[j], values[j], sum);
  }
  const float scale = norm_scale(warp_sum(sum), call.dim, call.eps);
#pragma unroll
  for (int j = 0; j < warp_dim_max / 32; ++j) {
    const int i = j * 32 + static_cast<int>(threadIdx.x);
    if (i < call.dim) y[i] = from_float<Y>(call.weight[i] * (values[j] * scale));
  }
}

// The row is read once and kept in shared memory.
template <class X, class Y>
__global__ void __launch_bounds__(row_threads) block_norm_kernel(RmsNorm<X, Y> call) {
  extern __shared__ float row_values[];
  __shared__ float partials[32];
  let_next_start();
  wait_for_previous();
  const std::int64_t row = static_cast<int>(blockIdx.x) / call.heads;
  const std::int64_t head = static_cast<int>(blockIdx.x) % call.heads;
  const X* x = call.x + row * call.x_row_stride + head * call.x_head_stride;
  Y* y = call.y + row * call.y_row_stride + head * call.y_head_stride;
  float sum = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += row_threads) {
    const float value = to_float(x[i]);
    row_values[i] = value;
    sum = fmaf(value, value, sum);
  }
  const float scale = norm_scale(block_sum(sum, partials), call.dim, call.eps);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += row_threads) {
    y[i] = from_float<Y>(call.weight[i] * (row_values[i] * scale));
  }
}

struct Float4 {
  float values[4];
};
__device__ Float4 load4(const float* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ void store4(float* to, const Float4& v) {
  *reinterpret_cast<float4*>(to) = make_float4(v.values[0], v.values[1], v.values[2], v.values[3]);
}
__device__ void store4(Bf16* to, const Float4& v) {
  ushort4 bits;
  bits.x = from_float<Bf16>(v.values[0]).bits;
  bits.y = from_float<Bf16>(v.values[1]).bits;
  bits.z = from_float<Bf16>(v.values[2]).bits;
  bits.w = from_float<Bf16>(v.values[3]).bits;
  *reinterpret_cast<ushort4*>(to) = bits;
}
constexpr int pieces_max = 4;  // of four values that a thread of the fast kernel holds

// A row in registers. Weights do not depend on the kernel in front: they are fetched before it has
// ended.
template <class T>
__global__ void __launch_bounds__(row_threads) add_norm_kernel(AddRmsNorm<T> call) {
  __shared__ float partials[32];
  const std::int64_t row = blockIdx.x;
  const auto at = [&](int piece) {
    return (piece * row_threads + static_cast<int>(threadIdx.x)) * 4;
  };
  Float4 weights[pieces_max];
  Float4 values[pieces_max];
#pragma unroll
  for (int j = 0; j < pieces_max; ++j) {
    if (at(j) < call.dim && call.y != nullptr) weights[j] = load4(call.weight + at(j));
  }
  let_next_start();
  wait_for_previous();
  float* residual = call.residual + row * call.dim;
#pragma unroll
  for (int j = 0; j < pieces_max; ++j) {
    if (at(j) < call.dim) values[j] = load4(residual + at(j));
  }
  if (call.part != nullptr) {
    Float4 added[pieces_max];
#pragma unroll
    for (int j = 0; j < pieces_max; ++j) {
      if (at(j) < call.dim) added[j] = load4(call.part + row * call.dim + at(j));
    }
#pragma unroll
    for (int j = 0; j < pieces_max; ++j) {
      if (at(j) >= call.dim) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) values[j].values[i] += added[j].values[i];
      store4(residual + at(j), values[j]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < pieces_max; ++j) {
    if (at(j) >= call.dim) continue;
    if (call.features != nullptr) {
      store4(call.features + row * call.feature_stride + at(j), values[j]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = fmaf(values[j].values[i], values[j].values[i], sum);
  }
  if (call.y == nullptr) return;
  const float scale = norm_scale(block_sum(sum, partials), call.dim, call.eps);
#pragma unroll
  for (int j = 0; j < pieces_max; ++j) {
    if (at(j) >= call.dim) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[j].values[i] = weights[j].values[i] * (values[j].values[i] * scale);
    }
    store4(call.y + row * call.dim + at(j), values[j]);
  }
}

// Any dim and alignment: the row stays in shared memory.
template <class T>
__global__ void __launch_bounds__(row_threads) add_norm_plain_kernel(AddRmsNorm<T> call) {
  extern __shared__ float row_values[];
  __shared__ float partials[32];
  let_next_start();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  float* residual = call.residual + row * call.dim;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += row_threads) {
    float value = residual[i];
    if (call.part != nullptr) residual[i] = value += call.part[row * call.dim + i];
    if (call.features != nullptr) {
      call.features[row * call.feature_stride + i] = from_float<T>(value);
    }
    row_values[i] = value;
    sum = fmaf(value, value, sum);
  }
  if (call.y == nullptr) return;
  const float scale = norm_scale(block_sum(sum, partials), call.dim, call.eps);
  for (int i = static_cast<int>(threadIdx.x); i < call.dim; i += row_threads) {
    call.y[row * call.dim + i] = from_float<T>(call.weight[i] * (row_values[i] * scale));
  }
}

bool aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

constexpr int dim_max = 12 * 1024;  // floats of a row in 48 KiB of shared memory

}  // namespace

template <class X, class Y>
Status rms_norm(const RmsNorm<X, Y>& call, Stream stream) {
  CHECK(call.dim > 0 && call.dim <= dim_max && call.heads > 0 && call.rows >= 0);
  const int count = call.rows * call.heads;
  if (count == 0) return {};
  if (call.dim <= warp_dim_max) {
    const int blocks = (count + warps_per_block - 1) / warps_per_block;
    return launch_early("rms_norm", warp_norm_kernel<X, Y>,
                        {dim3(static_cast<unsigned>(blocks)), dim3(32, warps_per_block)}, stream,
                        call);
  }
  return launch_early("rms_norm", block_norm_kernel<X, Y>,
                      {dim3(static_cast<unsigned>(count)), dim3(row_threads),
                       static_cast<std::size_t>(call.dim) * sizeof(float)},
                      stream, call);
}

template <class T>
Status add_rms_norm(const AddRmsNorm<T>& call, Stream stream) {
  CHECK(call.dim > 0 && call.dim <= dim_max && call.rows >= 0);
  if (call.rows == 0) return {};
  const bool in_registers = call.dim % 4 == 0 && call.dim <= 4 * pieces_max * row_threads &&
                            call.feature_stride % 4 == 0 && aligned(call.residual, 16) &&
                            aligned(call.part, 16) && aligned(call.weight, 16) &&
                            aligned(call.y, 4 * sizeof(T)) && aligned(call.features, 4 * sizeof(T));
  const dim3 rows(static_cast<unsigned>(call.rows));
  if (in_registers) {
    return launch_early("add_rms_norm", add_norm_kernel<T>, {rows, dim3(row_threads)}, stream,
                        call);
  }
  return launch_early("add_rms_norm", add_norm_plain_kernel<T>,
                      {rows, dim3(row_threads), static_cast<std::size_t>(call.dim) * sizeof(float)},
                      stream, call);
}

template Status rms_norm(const RmsNorm<float, float>&, Stream);
template Status rms_norm(const RmsNorm<float, Bf16>&, Stream);
template Status rms_norm(const RmsNorm<Bf16, Bf16>&, Stream);
template Status add_rms_norm(const AddRmsNorm<float>&, Stream);
template Status add_rms_norm(const AddRmsNorm<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
