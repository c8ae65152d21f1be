#include "kernels/sample/sample_noise_for_test.h"

#include <cuda_runtime.h>

#include "kernels/common/exp.h"
#include "kernels/sample/sample_noise.cuh"

namespace copse::kernels::cuda::testing {
namespace {

constexpr int threads = 256;

__global__ void noise_kernel(std::uint32_t first, std::uint32_t step, float* noise) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  noise[i] = gumbel_from_word(first + i * step);
}

// Bits of a float that is not negative grow with it.
__global__ void error_kernel(unsigned* largest) {
  float error = 0;
  const std::uint64_t threads = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t word = blockIdx.x * blockDim.x + threadIdx.x; word < (1ull << 32);
       word += threads) {
    const auto w = static_cast<std::uint32_t>(word);
    const float difference = fabsf(approximate_noise(w) - gumbel_from_word(w));
    error = difference <= error ? error : difference;  // NaN stays
  }
  atomicMax(largest, __float_as_uint(error));
}

__global__ void exp_kernel(const float* x, float* y) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = exp_fixed(x[i]);
}

}  // namespace

void exact_noise(std::uint32_t first, std::uint32_t step, float* noise, Stream stream) {
  noise_kernel<<<noise_count / threads, threads, 0, stream>>>(first, step, noise);
}

void largest_noise_error(unsigned* largest, Stream stream) {
  error_kernel<<<1024, threads, 0, stream>>>(largest);
}

void fixed_exponentials(const float* x, float* y, Stream stream) {
  exp_kernel<<<noise_count / threads, threads, 0, stream>>>(x, y);
}

}  // namespace copse::kernels::cuda::testing
