// Joins the partial results of split tiles: one block of threads per (row, head). First what each
// part counts for, then each thread takes four columns of every ways-th part.
#include <cuda_runtime.h>

#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 512;
constexpr int factors_max = 2048;  // parts that are worked on at once

// The parts of one query: part p at first + p * step.
struct Parts {
  int count;
  std::ptrdiff_t first;
  std::ptrdiff_t step;
};

template <class T>
__device__ Parts find_parts(const VerifyArguments<T>& args, const VerifyPlanSequence& plan,
                            int query, int extra) {
  const int tile = query / args.tile_queries;
  Parts parts;
  parts.count = plan.splits + extra;
  parts.first = static_cast<std::ptrdiff_t>(plan.first_partial + tile) * args.tile_queries +
                query % args.tile_queries;
  parts.step = static_cast<std::ptrdiff_t>(plan.tiles) * args.tile_queries;
  return parts;
}

// Largest score of all parts and their sum relative to it; every warp finds the same.
__device__ float2 join_stats(const float2* stats, const Parts& parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = -INFINITY;
  for (int p = lane; p < parts.count; p += 32) {
    largest = fmaxf(largest, stats[parts.first + p * parts.step].x);
  }
  largest = warp_max(largest);
  float sum = 0;
  for (int p = lane; p < parts.count; p += 32) {
    const float2 part = stats[parts.first + p * parts.step];
    if (part.y > 0) sum += part.y * exp2f(part.x - largest);
  }
  return {largest, warp_sum(sum)};
}

template <class T>
__global__ void __launch_bounds__(threads)
    merge_kernel(VerifyArguments<T> args, int rows_max, int extra) {
  __shared__ float factors[factors_max];
  __shared__ float4 sums[threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x) % rows_max;
  const int s = static_cast<int>(blockIdx.x) / rows_max;
  const VerifyPlanSequence plan = args.workspace.plan->sequences[s];
  const VerifySequence sequence = args.sequences[s];
  if (row >= sequence.rows || plan.splits + extra < 2 - extra) return;
  const int query = row * args.heads + static_cast<int>(blockIdx.y);
  const Parts parts = find_parts(args, plan, query, extra);
  const float2 total = join_stats(args.workspace.stats, parts);
  const int fours = args.latent / 4;
  const int ways = threads / fours;
  const int column = thread % fours;
  const int way = thread / fours;
  const auto* partials = static_cast<const float4*>(args.workspace.partials);
  float4 sum = {};
  for (int begin = 0; begin < parts.count; begin += factors_max) {
    const int end = min(parts.count, begin + factors_max);
    __syncthreads();
    for (int p = begin + thread; p < end; p += threads) {
      const float2 part = args.workspace.stats[parts.first + p * parts.step];
      factors[p - begin] = part.y > 0 ? exp2f(part.x - total.x) : 0.0f;
    }
    __syncthreads();
    if (way >= ways) continue;
#pragma unroll 8
    for (int p = begin + way; p < end; p += ways) {
      const float4 part = partials[(parts.first + p * parts.step) * fours + column];
      const float factor = factors[p - begin];
      sum.x += part.x * factor;
      sum.y += part.y * factor;
      sum.z += part.z * factor;
      sum.w += part.w * factor;
    }
  }
  sums[thread] = sum;
  __syncthreads();
  if (way != 0) return;
  for (int other = 1; other < ways; ++other) {
    const float4 more = sums[other * fours + column];
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  const float inverse = 1.0f / total.y;
  T* out = args.out + query_place(sequence, args.heads, query) * args.latent + column * 4;
  out[0] = from_float<T>(sum.x * inverse);
  out[1] = from_float<T>(sum.y * inverse);
  out[2] = from_float<T>(sum.z * inverse);
  out[3] = from_float<T>(sum.w * inverse);
}

}  // namespace

template <class T>
Status launch_verify_merge(const VerifyArguments<T>& args, int rows_max, int extra, Stream stream) {
  const dim3 grid(static_cast<unsigned>(args.sequences_max * rows_max),
                  static_cast<unsigned>(args.heads));
  merge_kernel<T><<<grid, threads, 0, stream>>>(args, rows_max, extra);
  return launched("verify_attention merge");
}
template Status launch_verify_merge(const VerifyArguments<float>&, int, int, Stream);
template Status launch_verify_merge(const VerifyArguments<Bf16>&, int, int, Stream);

}  // namespace copse::kernels::cuda
