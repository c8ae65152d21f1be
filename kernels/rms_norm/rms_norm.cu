#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
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
__device__ Float4 load1(const float* from) {
  return {{*from, 0, 0, 0}};
}

// kStep values at once: 4 where every row begins at 16 bytes, else 1.
template <class T, int kStep>
__global__ void __launch_bounds__(row_threads) add_norm_kernel(AddRmsNorm<T> call) {
  extern __shared__ float row_values[];
  __shared__ float partials[32];
  const std::int64_t row = blockIdx.x;
  float* residual = call.residual + row * call.dim;
  const float* part = call.part == nullptr ? nullptr : call.part + row * call.dim;
  T* features = call.features == nullptr ? nullptr : call.features + row * call.feature_stride;
  const auto load = [](const float* from) {
    if constexpr (kStep == 4) {
      return load4(from);
    } else {
      return load1(from);
    }
  };
  const auto store = [](auto* to, const Float4& v) {
    if constexpr (kStep == 4) {
      store4(to, v);
    } else {
      *to = from_float<std::remove_reference_t<decltype(*to)>>(v.values[0]);
    }
  };
  float sum = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * kStep; i < call.dim; i += row_threads * kStep) {
    Float4 value = load(residual + i);
    if (part != nullptr) {
      const Float4 added = load(part + i);
#pragma unroll
      for (int j = 0; j < kStep; ++j) value.values[j] += added.values[j];
      store(residual + i, value);
    }
    if (features != nullptr) store(features + i, value);
    store(row_values + i, value);
#pragma unroll
    for (int j = 0; j < kStep; ++j) sum = fmaf(value.values[j], value.values[j], sum);
  }
  if (call.y == nullptr) return;
  const float scale = norm_scale(block_sum(sum, partials), call.dim, call.eps);
  T* y = call.y + row * call.dim;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * kStep; i < call.dim; i += row_threads * kStep) {
    Float4 value = load(row_values + i);
    const Float4 weight = load(call.weight + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j) {
      value.values[j] = weight.values[j] * (value.values[j] * scale);
    }
    store(y + i, value);
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
    warp_norm_kernel<X, Y>
        <<<static_cast<unsigned>(blocks), dim3(32, warps_per_block), 0, stream>>>(call);
  } else {
    const std::size_t shared = static_cast<std::size_t>(call.dim) * sizeof(float);
    block_norm_kernel<X, Y><<<static_cast<unsigned>(count), row_threads, shared, stream>>>(call);
  }
  return launched("rms_norm");
}

template <class T>
Status add_rms_norm(const AddRmsNorm<T>& call, Stream stream) {
  CHECK(call.dim > 0 && call.dim <= dim_max && call.rows >= 0);
  if (call.rows == 0) return {};
  const bool by_four = call.dim % 4 == 0 && call.feature_stride % 4 == 0 &&
                       aligned(call.residual, 16) && aligned(call.part, 16) &&
                       aligned(call.weight, 16) && aligned(call.y, 4 * sizeof(T)) &&
                       aligned(call.features, 4 * sizeof(T));
  const std::size_t shared = static_cast<std::size_t>(call.dim) * sizeof(float);
  const auto rows = static_cast<unsigned>(call.rows);
  if (by_four) {
    add_norm_kernel<T, 4><<<rows, row_threads, shared, stream>>>(call);
  } else {
    add_norm_kernel<T, 1><<<rows, row_threads, shared, stream>>>(call);
  }
  return launched("add_rms_norm");
}

template Status rms_norm(const RmsNorm<float, float>&, Stream);
template Status rms_norm(const RmsNorm<float, Bf16>&, Stream);
template Status rms_norm(const RmsNorm<Bf16, Bf16>&, Stream);
template Status add_rms_norm(const AddRmsNorm<float>&, Stream);
template Status add_rms_norm(const AddRmsNorm<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
