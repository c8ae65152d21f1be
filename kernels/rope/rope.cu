#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/rope/rope_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;

dim3 blocks_for(std::int64_t items) {
  return dim3(static_cast<unsigned>((items + threads - 1) / threads));
}

// cosf and sinf reduce arguments of any size exactly; an angle reaches 10^5.
__global__ void __launch_bounds__(threads) angles_kernel(RopeAngles call) {
  let_next_start();
  wait_for_previous();
  const int pairs = call.dim / 2;
  const int index = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (index >= call.rows * pairs) return;
  const int row = index / pairs;
  const int i = index % pairs;
  const float angle = static_cast<float>(max(call.positions[row], 0)) * call.inv_freq[i];
  float* cosines = call.angles + static_cast<std::int64_t>(row) * call.dim;
  cosines[i] = cosf(angle) * call.attention_factor;
  cosines[pairs + i] = sinf(angle) * call.attention_factor;
}

// Products and sums are rounded one by one, as in the reference.
template <class T>
__global__ void __launch_bounds__(threads) rope_kernel(Rope<T> call) {
  let_next_start();
  wait_for_previous();
  const int pairs = call.dim / 2;
  const std::int64_t index = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (index >= std::int64_t{call.rows} * call.heads * pairs) return;
  const int i = static_cast<int>(index % pairs);
  const std::int64_t head = index / pairs % call.heads;
  const std::int64_t row = index / pairs / call.heads;
  const bool interleaved = call.pairs == RopePairs::interleaved;
  T* x = call.x + row * call.row_stride + head * call.head_stride;
  T* first = x + (interleaved ? 2 * i : i);
  T* second = x + (interleaved ? 2 * i + 1 : i + pairs);
  const float cosine = call.angles[row * call.dim + i];
  const float sine = call.angles[row * call.dim + pairs + i];
  const float a = to_float(*first);
  const float b = to_float(*second);
  *first = from_float<T>(__fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)));
  *second = from_float<T>(__fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine)));
}

}  // namespace

Status rope_angles(const RopeAngles& call, Stream stream) {
  CHECK(call.dim > 0 && call.dim % 2 == 0 && call.rows >= 0);
  if (call.rows == 0) return {};
  return launch_early("rope_angles", angles_kernel,
                      {blocks_for(std::int64_t{call.rows} * call.dim / 2), dim3(threads)}, stream,
                      call);
}

template <class T>
Status rope(const Rope<T>& call, Stream stream) {
  CHECK(call.dim > 0 && call.dim % 2 == 0 && call.heads > 0 && call.rows >= 0);
  if (call.rows == 0) return {};
  const std::int64_t items = std::int64_t{call.rows} * call.heads * (call.dim / 2);
  return launch_early("rope", rope_kernel<T>, {blocks_for(items), dim3(threads)}, stream, call);
}

template Status rope(const Rope<float>&, Stream);
template Status rope(const Rope<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
