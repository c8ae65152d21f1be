// v0: one block of threads per (row, head), which walks the tokens that its row sees. Every head
// reads the keys again. The order of each sum is that of the reference, so float32 results have its
// bits (docs/decisions/0002).
#include <cuda_runtime.h>

#include "kernels/common/attend.h"
#include "kernels/common/cuda/status.h"
#include "kernels/common/exp.h"
#include "kernels/common/tree_sum.h"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int lanes = sum_partials;  // that share a token's score

// exp_fixed of kernels/common/exp.h, operation by operation.
__device__ float exp_as_reference(float x) {
  namespace c = exp_constants;
  if (x < exp_underflow) return 0.0f;
  if (x > exp_overflow) return __int_as_float(0x7f800000);
  if (x != x) return x;
  const float n = __fsub_rn(__fmaf_rn(x, c::log2_e, c::round_magic), c::round_magic);
  const float r = __fmaf_rn(n, c::minus_ln2_low, __fmaf_rn(n, c::minus_ln2_high, x));
  constexpr float k[6] = {c::coefficients[0], c::coefficients[1], c::coefficients[2],
                          c::coefficients[3], c::coefficients[4], c::coefficients[5]};
  float p = k[0];
#pragma unroll
  for (int i = 1; i < 6; ++i) p = __fmaf_rn(p, r, k[i]);
  const float y = __fadd_rn(__fmaf_rn(p, __fmul_rn(r, r), r), 1.0f);
  const float scale = __int_as_float((static_cast<int>(n) + 126) << 23);
  return __fmul_rn(__fmul_rn(y, scale), 2.0f);
}

// Lane j of 16 holds partial j; every lane gets the sum.
__device__ float tree_sum_lanes(float value) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, half));
  }
  return value;
}

// Pointers to the tokens at positions of one block: the prefix's, then the row's ancestors.
// `node` is where to look for the next ancestor; called by one thread, block after block.
template <class T>
__device__ int gather_block(const VerifyArguments<T>& args, const VerifySequence& sequence, int row,
                            int first, int& node, const T** tokens) {
  int count = 0;
  for (; count < attend_block_tokens && first + count < sequence.prefix_length; ++count) {
    tokens[count] = prefix_row(args, sequence, first + count);
  }
  for (; count < attend_block_tokens && node <= row; ++node) {
    if (sees(sequence, row, node)) tokens[count++] = scratch_row(args, sequence, node);
  }
  return count;
}

template <class T>
__global__ void __launch_bounds__(threads) naive_kernel(VerifyArguments<T> args, int rows_max) {
  extern __shared__ float memory[];
  float* q = memory;            // [width]
  float* out = q + args.width;  // [latent]
  __shared__ float weights[attend_block_tokens];
  __shared__ const T* tokens[attend_block_tokens];
  __shared__ int shared_count;
  __shared__ float shared_sum;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x) % rows_max;
  const VerifySequence sequence = args.sequences[static_cast<int>(blockIdx.x) / rows_max];
  if (row >= sequence.rows) return;
  const int head = static_cast<int>(blockIdx.y);
  const std::ptrdiff_t place = query_place(sequence, args.heads, row * args.heads + head);
  for (int i = thread; i < args.width; i += threads) {
    q[i] = to_float(args.q[place * args.width + i]);
  }
  float largest = -INFINITY;
  float sum = 0;
  int node = 0;
  for (int first = 0;; first += attend_block_tokens) {
    __syncthreads();
    if (thread == 0) shared_count = gather_block(args, sequence, row, first, node, tokens);
    __syncthreads();
    const int count = shared_count;
    if (count == 0) break;
    for (int t = thread / lanes; t < attend_block_tokens; t += threads / lanes) {
      float partial = 0;
      if (t < count) {
        for (int i = thread % lanes; i < args.width; i += lanes) {
          partial = __fmaf_rn(q[i], to_float(tokens[t][i]), partial);
        }
      }
      const float total = tree_sum_lanes(partial);
      if (t < count) weights[t] = __fmul_rn(total, args.scale);
    }
    __syncthreads();
    float block_largest = largest;
    for (int t = 0; t < count; ++t) block_largest = fmaxf(block_largest, weights[t]);
    const float rescale = exp_as_reference(__fsub_rn(largest, block_largest));
    __syncthreads();
    if (thread < count) {
      weights[thread] = exp_as_reference(__fsub_rn(weights[thread], block_largest));
    }
    __syncthreads();
    if (thread < 32) {
      float partial = 0;
      for (int t = thread % lanes; t < count; t += lanes) partial = __fadd_rn(partial, weights[t]);
      const float total = tree_sum_lanes(partial);
      if (thread == 0) shared_sum = total;
    }
    for (int i = thread; i < args.latent; i += threads) {
      float value = sum == 0 ? 0.0f : __fmul_rn(out[i], rescale);
      for (int t = 0; t < count; ++t) value = __fmaf_rn(weights[t], to_float(tokens[t][i]), value);
      out[i] = value;
    }
    __syncthreads();
    sum = __fadd_rn(__fmul_rn(sum, rescale), shared_sum);
    largest = block_largest;
  }
  const float inverse = __fdiv_rn(1.0f, sum);
  for (int i = thread; i < args.latent; i += threads) {
    args.out[place * args.latent + i] = from_float<T>(__fmul_rn(out[i], inverse));
  }
}

}  // namespace

template <class T>
Status launch_verify_naive(const VerifyArguments<T>& args, int rows_max, Stream stream) {
  const dim3 grid(static_cast<unsigned>(args.sequences_max * rows_max),
                  static_cast<unsigned>(args.heads));
  const auto bytes = static_cast<std::size_t>(args.width + args.latent) * sizeof(float);
  naive_kernel<T><<<grid, threads, bytes, stream>>>(args, rows_max);
  return launched("verify_attention naive");
}
template Status launch_verify_naive(const VerifyArguments<float>&, int, Stream);
template Status launch_verify_naive(const VerifyArguments<Bf16>&, int, Stream);

}  // namespace copse::kernels::cuda
