#include <cuda_runtime.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
#include "kernels/mla_rows/mla_rows.h"

namespace copse::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Sum over the block, on every thread, in one order. Uses `partial` [kWarps]; ends with a barrier
// before the next use.
__device__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += partial[w];
  __syncthreads();
  return sum;
}

template <class T>
__device__ void norm_row(const T* from, T* to, int dim, const float* weight, float eps,
                         float* partial) {
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    const float value = to_float(from[i]);
    squares += value * value;
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(dim);
  const float root = sqrtf(mean + eps);
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    to[i] = from_float<T>(weight[i] * (to_float(from[i]) / root));
  }
}

// Value j of a rotated head of `dim` values; angles: dim / 2 cosines, then dim / 2 sines.
template <class T>
__device__ float rotated(const T* x, int j, int dim, const float* angles, RopePairs pairs) {
  const int half = dim / 2;
  const bool interleaved = pairs == RopePairs::interleaved;
  const int pair = interleaved ? j / 2 : j % half;
  const bool second = interleaved ? j % 2 == 1 : j >= half;
  const float a = to_float(x[interleaved ? 2 * pair : pair]);
  const float b = to_float(x[interleaved ? 2 * pair + 1 : pair + half]);
  const float cosine = angles[pair];
  const float sine = angles[half + pair];
  return second ? __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine))
                : __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
}

// Blocks (row, 0) norm the latent and rotate its key; blocks (row, 1) norm q_a.
template <class T>
__global__ void latent_rows_kernel(LatentRows<T> call) {
  __shared__ float partial[kWarps];
  const int row = static_cast<int>(blockIdx.x);
  const VerifySequence& sequence = call.sequences[row / call.rows_per_sequence];
  const int i = row - sequence.first_row;
  if (i >= sequence.rows) return;
  const int width = call.latent + call.rope;
  T* q_a = call.projected + static_cast<std::ptrdiff_t>(row) * (call.q_lora + width);
  if (blockIdx.y == 1) {
    norm_row(q_a, q_a, call.q_lora, call.q_norm, call.eps, partial);
    return;
  }
  const T* latent = q_a + call.q_lora;
  T* out =
      call.scratch + (static_cast<std::ptrdiff_t>(sequence.slot) * call.scratch_rows + i) * width;
  norm_row(latent, out, call.latent, call.kv_norm, call.eps, partial);
  const float* angles = call.angles + static_cast<std::ptrdiff_t>(row) * call.rope;
  for (int j = static_cast<int>(threadIdx.x); j < call.rope; j += kThreads) {
    out[call.latent + j] =
        from_float<T>(rotated(latent + call.latent, j, call.rope, angles, call.pairs));
  }
}

template <class T>
__global__ void query_rope_kernel(QueryRope<T> call) {
  const int row = static_cast<int>(blockIdx.x);
  const float* angles = call.angles + static_cast<std::ptrdiff_t>(row) * call.rope;
  for (int i = static_cast<int>(threadIdx.x); i < call.heads * call.rope; i += kThreads) {
    const int head = i / call.rope;
    const int j = i % call.rope;
    const std::ptrdiff_t index = static_cast<std::ptrdiff_t>(row) * call.heads + head;
    const T* from = call.q + index * (call.nope + call.rope) + call.nope;
    call.out[index * (call.latent + call.rope) + call.latent + j] =
        from_float<T>(rotated(from, j, call.rope, angles, call.pairs));
  }
}

}  // namespace

template <class T>
Status latent_rows(const LatentRows<T>& call, Stream stream) {
  CHECK(call.rows > 0 && call.rows % call.rows_per_sequence == 0);
  const dim3 grid(static_cast<unsigned>(call.rows), call.q_lora > 0 ? 2 : 1);
  latent_rows_kernel<<<grid, kThreads, 0, stream>>>(call);
  return launched("latent_rows");
}

template <class T>
Status query_rope(const QueryRope<T>& call, Stream stream) {
  CHECK(call.rows > 0 && call.heads > 0);
  query_rope_kernel<<<call.rows, kThreads, 0, stream>>>(call);
  return launched("query_rope");
}

template Status latent_rows(const LatentRows<float>&, Stream);
template Status latent_rows(const LatentRows<Bf16>&, Stream);
template Status query_rope(const QueryRope<float>&, Stream);
template Status query_rope(const QueryRope<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
