#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/swiglu/swiglu_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

__device__ float silu(float a) {
  return a / (1.0f + expf(-a));
}

template <class T, int kCount>
__global__ void __launch_bounds__(threads) swiglu_kernel(Swiglu<T> call) {
  using Values = Pack<T, kCount>;
  let_next_start();
  wait_for_previous();
  const int packs = call.columns / kCount;
  const std::int64_t index = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (index >= std::int64_t{call.rows} * packs) return;
  const std::int64_t row = index / packs;
  const std::int64_t column = index % packs * kCount;
  const Values gate = *reinterpret_cast<const Values*>(call.gate + row * call.in_stride + column);
  const Values up = *reinterpret_cast<const Values*>(call.up + row * call.in_stride + column);
  Values out;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    out.values[i] = from_float<T>(silu(to_float(gate.values[i])) * to_float(up.values[i]));
  }
  *reinterpret_cast<Values*>(call.out + row * call.out_stride + column) = out;
}

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

template <class T, int kCount>
Status launch(const Swiglu<T>& call, Stream stream) {
  const std::int64_t items = std::int64_t{call.rows} * (call.columns / kCount);
  const auto blocks = static_cast<unsigned>((items + threads - 1) / threads);
  return launch_early("swiglu", swiglu_kernel<T, kCount>, {dim3(blocks), dim3(threads)}, stream,
                      call);
}

}  // namespace

template <class T>
Status swiglu(const Swiglu<T>& call, Stream stream) {
  CHECK(call.columns > 0 && call.rows >= 0);
  if (call.rows == 0) return {};
  constexpr int wide = 16 / static_cast<int>(sizeof(T));
  const bool by_sixteen = call.columns % wide == 0 && call.in_stride % wide == 0 &&
                          call.out_stride % wide == 0 && aligned(call.gate) && aligned(call.up) &&
                          aligned(call.out);
  return by_sixteen ? launch<T, wide>(call, stream) : launch<T, 1>(call, stream);
}

template Status swiglu(const Swiglu<float>&, Stream);
template Status swiglu(const Swiglu<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
