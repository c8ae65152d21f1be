#include "model/cuda/random_fill.h"

#include <cuda_runtime.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"

namespace copse {
namespace {

__device__ std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <class T>
__global__ void random_fill_kernel(T* values, std::size_t count, float centre, float spread,
                                   std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const auto word = static_cast<std::uint32_t>(mixed(seed + i * 0x9E3779B97F4A7C15u) >> 40);
    const float unit = static_cast<float>(word) * 0x1p-23f - 1.0f;
    values[i] = kernels::cuda::from_float<T>(centre + spread * unit);
  }
}

}  // namespace

template <class T>
Status random_fill(T* values, std::size_t count, float centre, float spread, std::uint64_t seed) {
  if (count == 0) return {};
  random_fill_kernel<<<1024, 256>>>(values, count, centre, spread, seed);
  COPSE_RETURN_IF_ERROR(kernels::cuda::launched("random_fill"));
  return kernels::cuda::cuda_status(cudaDeviceSynchronize(), "random_fill");
}

template Status random_fill(float*, std::size_t, float, float, std::uint64_t);
template Status random_fill(Bf16*, std::size_t, float, float, std::uint64_t);

}  // namespace copse
