// The second half of prefix_tail: one warp per (row, head) over the rows of its own tree, which
// leaves one more partial result of its tile.
#include <cuda_runtime.h>

#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_rows.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr int latent_max = 512;

template <class T>
__global__ void __launch_bounds__(threads) tail_kernel(VerifyArguments<T> args, int rows_max) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) % rows_max;
  const int s = static_cast<int>(blockIdx.x) / rows_max;
  const int head = static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.x) / 32;
  const VerifySequence sequence = args.sequences[s];
  if (row >= sequence.rows || head >= args.heads) return;
  const VerifyPlanSequence plan = args.workspace.plan->sequences[s];
  const int query = row * args.heads + head;
  const T* q = args.q + query_place(sequence, args.heads, query) * args.width;
  float out[latent_max / 32] = {};
  float largest = -INFINITY;
  float sum = 0;
  for (int node = 0; node <= row; ++node) {
    if (!sees(sequence, row, node)) continue;
    const T* key = scratch_row(args, sequence, node);
    float score = 0;
    for (int i = lane; i < args.width; i += 32) score += to_float(q[i]) * to_float(key[i]);
    score = warp_sum(score) * args.scale;
    const float before = largest;
    largest = fmaxf(largest, score);
    const float rescale = exp2f(before - largest);
    const float weight = exp2f(score - largest);
    sum = sum * rescale + weight;
#pragma unroll
    for (int i = 0; i < latent_max / 32; ++i) {
      const int column = lane + i * 32;
      if (column < args.latent) out[i] = out[i] * rescale + weight * to_float(key[column]);
    }
  }
  const int partial = plan.first_partial + plan.splits * plan.tiles + query / args.tile_queries;
  const std::ptrdiff_t place =
      static_cast<std::ptrdiff_t>(partial) * args.tile_queries + query % args.tile_queries;
  if (lane == 0) args.workspace.stats[place] = {largest, sum};
#pragma unroll
  for (int i = 0; i < latent_max / 32; ++i) {
    const int column = lane + i * 32;
    if (column < args.latent)
      static_cast<float*>(args.workspace.partials)[place * args.latent + column] = out[i];
  }
}

}  // namespace

template <class T>
Status launch_verify_tail(const VerifyArguments<T>& args, int rows_max, Stream stream) {
  const dim3 grid(static_cast<unsigned>(args.sequences_max * rows_max),
                  static_cast<unsigned>((args.heads + warps - 1) / warps));
  VerifyArguments<T> scaled = args;
  scaled.scale *= 1.44269504088896341f;
  tail_kernel<T><<<grid, threads, 0, stream>>>(scaled, rows_max);
  return launched("verify_attention tail");
}
template Status launch_verify_tail(const VerifyArguments<float>&, int, Stream);
template Status launch_verify_tail(const VerifyArguments<Bf16>&, int, Stream);

}  // namespace copse::kernels::cuda
