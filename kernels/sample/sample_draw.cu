// One block a slice of a row, which it reads once. Noise is approximate at first, with a bound on
// its error: each thread keeps its best token, and those that come within the bound of the best of
// the block get the exact noise.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/sample/sample_noise.cuh"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_row.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int blocks_per_multiprocessor = 4;
constexpr float infinity = __builtin_huge_valf();

struct DrawCall {
  SampleCall sample;
  const SampleThreshold* thresholds;
  SampleChoice* choices;
  int slices;
  int slice_width;
};

// What tokens of one row are worth. Greedy: the row's temperature means argmax.
template <bool Greedy>
struct Scorer {
  DrawRow row;
  SampleThreshold threshold;
  bool filtered;
  float inverse_temperature;  // for approximate scores

  __device__ Scorer(const DrawCall& call, int index, const DrawRow& draw)
      : row(draw),
        filtered(!Greedy && call.thresholds != nullptr && draw.filtered()),
        inverse_temperature(1 / draw.temperature) {
    if (filtered) threshold = call.thresholds[index];
  }
  __device__ bool drawable(float logit, TokenId token) const {
    if (row.masked_count > 0 && row.is_masked(token)) return false;
    return !filtered || passes(threshold, logit / row.temperature, token);
  }
  __device__ std::uint32_t word(TokenId token) const {
    return noise_word(row.seed, row.choice, row.position, static_cast<std::uint32_t>(token));
  }
  __device__ float approximate(float logit, TokenId token) const {
    if constexpr (Greedy) return logit;
    return fmaf(logit, inverse_temperature, approximate_noise(word(token)));
  }
  __device__ float exact(float logit, TokenId token) const {
    if constexpr (Greedy) return logit;
    return logit / row.temperature + gumbel_from_word(word(token));
  }
  // Below it an approximate score cannot belong to the best. What rounds differently in scores is
  // a few units of the last place of a scaled logit, which is not 23 larger than its score.
  __device__ float border(float best) const {
    if (Greedy || !is_finite(best)) return best;
    return best - 2 * noise_error - 1e-6f * fabsf(best);
  }
};

__device__ SampleChoice better_of(SampleChoice a, SampleChoice b) {
  if (b.token == sample_none) return a;
  return a.token == sample_none || better_choice(b, a) ? b : a;
}

__device__ SampleChoice warp_choice(SampleChoice choice) {
  for (int distance = 16; distance > 0; distance /= 2) {
    choice = better_of(choice, {__shfl_xor_sync(0xffffffffu, choice.score, distance),
                                __shfl_xor_sync(0xffffffffu, choice.token, distance)});
  }
  return choice;
}

// Calls take(logit, index) for a thread's part of [begin, end) of a row, in ascending order; index
// is that of the row. Fetches `Quads` times four logits at once.
template <int Quads, class Take>
__device__ void for_each_logit(const float* row, int begin, int end, const Take& take) {
  const int thread = static_cast<int>(threadIdx.x);
  if (reinterpret_cast<std::uintptr_t>(row + begin) % sizeof(float4) != 0) {
    for (int i = begin + thread; i < end; i += threads) take(row[i], i);
    return;
  }
  const int whole = begin + (end - begin) / 4 * 4;
  for (int first = begin; first < whole; first += 4 * threads * Quads) {
    float4 four[Quads];
#pragma unroll
    for (int q = 0; q < Quads; ++q) {
      const int at = first + 4 * (q * threads + thread);
      if (at < whole) four[q] = __ldcs(reinterpret_cast<const float4*>(row + at));
    }
#pragma unroll
    for (int q = 0; q < Quads; ++q) {
      const int at = first + 4 * (q * threads + thread);
      if (at >= whole) break;
      take(four[q].x, at);
      take(four[q].y, at + 1);
      take(four[q].z, at + 2);
      take(four[q].w, at + 3);
    }
  }
  if (whole + thread < end) take(row[whole + thread], whole + thread);
}

// The best of a thread's tokens by approximate score, the first of equals, and the score of the
// next best.
struct Favourite {
  float score = -infinity;
  float next = -infinity;
  float logit = 0;
  TokenId token = sample_none;

  __device__ void add(float other, float other_logit, TokenId other_token) {
    const bool better = other > score || token == sample_none;
    next = better ? score : fmaxf(next, other);
    score = better ? other : score;
    logit = better ? other_logit : logit;
    token = better ? other_token : token;
  }
};

struct Shared {
  float largest[warps];
  SampleChoice choice[warps];
};

__device__ float block_max(float value, Shared& shared) {
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) shared.largest[threadIdx.x / 32] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_max(lane < warps ? shared.largest[lane] : -infinity);
}

// The slice's best choice, per thread. Sets finite to false where a logit is not.
template <bool Greedy>
__device__ SampleChoice draw_slice(const Scorer<Greedy>& scorer, const float* logits, int begin,
                                   int end, int id_begin, bool& finite, Shared& shared) {
  constexpr int quads = Greedy ? 4 : 2;  // noise takes registers
  Favourite favourite;
  for_each_logit<quads>(logits, begin, end, [&](float logit, int index) {
    finite = finite && is_finite(logit);
    const TokenId token = id_begin + index;
    if (!scorer.drawable(logit, token)) return;
    favourite.add(scorer.approximate(logit, token), logit, token);
  });
  const float border = scorer.border(block_max(favourite.score, shared));
  SampleChoice best;
  if (favourite.token == sample_none || favourite.score < border) return best;
  best = {scorer.exact(favourite.logit, favourite.token), favourite.token};
  if (Greedy || favourite.next < border) return best;
  // Rare: two of one thread's tokens are too close to tell.
  for_each_logit<1>(logits, begin, end, [&](float logit, int index) {
    const TokenId token = id_begin + index;
    if (!scorer.drawable(logit, token) || scorer.approximate(logit, token) < border) return;
    best = better_of(best, {scorer.exact(logit, token), token});
  });
  return best;
}

__global__ void __launch_bounds__(threads, blocks_per_multiprocessor) draw_kernel(DrawCall call) {
  __shared__ Shared shared;
  const int slice = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  SampleChoice* out = call.choices + static_cast<std::ptrdiff_t>(row) * call.slices + slice;
  wait_for_previous();
  const RowPlace place = read_row_place(call.sample, row);
  if (place.padding()) {
    if (threadIdx.x == 0) *out = {0, 0};
    return;
  }
  const float* logits = call.sample.logits + static_cast<std::ptrdiff_t>(row) * call.sample.stride;
  const int begin = min(slice * call.slice_width, call.sample.vocabulary_rows);
  const int end = min(begin + call.slice_width, call.sample.vocabulary_rows);
  const DrawRow draw = read_draw_row(call.sample, place);
  const int id_begin = call.sample.vocabulary_begin;
  bool finite = true;
  SampleChoice best = draw.greedy() ? draw_slice(Scorer<true>(call, row, draw), logits, begin, end,
                                                 id_begin, finite, shared)
                                    : draw_slice(Scorer<false>(call, row, draw), logits, begin, end,
                                                 id_begin, finite, shared);
  let_next_start();  // not before: its blocks would take room from this kernel's
  best = warp_choice(best);
  if (threadIdx.x % 32 == 0) shared.choice[threadIdx.x / 32] = best;
  finite = __syncthreads_and(finite ? 1 : 0) != 0;
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  best = warp_choice(lane < warps ? shared.choice[lane] : SampleChoice{});
  if (lane == 0) *out = finite ? best : SampleChoice{0, sample_not_finite};
}

// One warp a row.
__global__ void merge_kernel(int rows, int world_size, int slices, const SampleChoice* choices,
                             TokenId* tokens) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  SampleChoice best;
  bool finite = true;
  for (int i = lane; i < world_size * slices; i += 32) {
    const std::ptrdiff_t rank = i / slices;
    const SampleChoice choice = choices[(rank * rows + row) * slices + i % slices];
    finite = finite && choice.token != sample_not_finite;
    best = better_of(best, choice);
  }
  best = warp_choice(best);
  finite = __all_sync(0xffffffffu, finite) != 0;
  if (lane == 0) {
    tokens[row] = finite && best.token != sample_none ? best.token : sample_not_finite;
  }
}

}  // namespace

Status sample_local(const SampleCall& sample, const SampleThreshold* thresholds,
                    SampleChoice* choices, Stream stream) {
  CHECK(sample.rows > 0 && sample.rows_per_sequence > 0);
  CHECK(sample.stride >= sample.vocabulary_rows);
  const int slices = sample_slices(sample);
  const int local = (sample.vocabulary + sample.world_size - 1) / sample.world_size;
  const DrawCall call = {sample, thresholds, choices, slices, (local + slices - 1) / slices};
  const dim3 grid(static_cast<unsigned>(slices), static_cast<unsigned>(sample.rows));
  return launch_early("sample_local", draw_kernel, {grid, threads}, stream, call);
}

Status sample_merge(const SampleCall& call, const SampleChoice* choices, TokenId* tokens,
                    Stream stream) {
  CHECK(call.rows > 0 && call.world_size > 0 && call.world_size <= limits::world_size);
  const auto blocks = static_cast<unsigned>((call.rows + warps - 1) / warps);
  return launch_early("sample_merge", merge_kernel, {blocks, threads}, stream, call.rows,
                      call.world_size, sample_slices(call), choices, tokens);
}

}  // namespace copse::kernels::cuda
