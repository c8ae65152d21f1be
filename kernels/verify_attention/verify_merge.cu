// Joins the partial results of split tiles: one block of threads per (row, head).
#include <cuda_runtime.h>

#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 128;

template <class T>
__global__ void __launch_bounds__(threads)
    merge_kernel(VerifyArguments<T> args, int rows_max, int extra) {
  const int row = static_cast<int>(blockIdx.x) % rows_max;
  const int s = static_cast<int>(blockIdx.x) / rows_max;
  const VerifyPlanSequence plan = args.workspace.plan->sequences[s];
  const int parts = plan.splits + extra;
  const VerifySequence sequence = args.sequences[s];
  if (row >= sequence.rows || (parts < 2 && extra == 0)) return;
  const int query = row * args.heads + static_cast<int>(blockIdx.y);
  const int tile = query / args.tile_queries;
  // Part p of this query stands at first + p * step.
  const std::ptrdiff_t step = static_cast<std::ptrdiff_t>(plan.tiles) * args.tile_queries;
  const std::ptrdiff_t first =
      static_cast<std::ptrdiff_t>(plan.first_partial + tile) * args.tile_queries +
      query % args.tile_queries;
  float largest = -INFINITY;
  for (int p = 0; p < parts; ++p) {
    largest = fmaxf(largest, args.workspace.stats[first + p * step].x);
  }
  float sum = 0;
  for (int p = 0; p < parts; ++p) {
    const float2 part = args.workspace.stats[first + p * step];
    if (part.y > 0) sum += part.y * exp2f(part.x - largest);
  }
  const float inverse = 1.0f / sum;
  const std::ptrdiff_t place = query_place(sequence, args.heads, query);
  for (int i = static_cast<int>(threadIdx.x); i < args.latent; i += threads) {
    float value = 0;
    for (int p = 0; p < parts; ++p) {
      const float2 part = args.workspace.stats[first + p * step];
      if (part.y > 0) {
        value +=
            args.workspace.partials[(first + p * step) * args.latent + i] * exp2f(part.x - largest);
      }
    }
    args.out[place * args.latent + i] = from_float<T>(value * inverse);
  }
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
