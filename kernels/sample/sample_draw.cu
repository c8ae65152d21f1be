// One block a slice of a row. Noise is approximate at first, with a bound on its error; the few
// tokens that come within the bounds of the best one get the exact noise.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
#include "kernels/sample/sample_noise.cuh"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_row.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int quads = 3;
constexpr int values_per_thread = 4 * quads;
constexpr float infinity = __builtin_huge_valf();

struct DrawCall {
  SampleCall sample;
  const SampleThreshold* thresholds;
  SampleChoice* choices;
  int slices;
  int slice_width;
};

// What tokens of one row are worth.
struct Scorer {
  DrawRow row;
  SampleThreshold threshold;
  bool filtered;
  float inverse_temperature;  // for approximate scores

  __device__ bool drawable(float logit, TokenId token) const {
    if (row.masked_count > 0 && row.is_masked(token)) return false;
    return !filtered || passes(threshold, logit / row.temperature, token);
  }
  __device__ std::uint32_t word(TokenId token) const {
    return noise_word(row.seed, row.choice, row.position, static_cast<std::uint32_t>(token));
  }
  __device__ float approximate(float logit, TokenId token) const {
    if (row.greedy()) return logit;
    return fmaf(logit, inverse_temperature, approximate_noise(word(token)));
  }
  __device__ float exact(float logit, TokenId token) const {
    return row.greedy() ? logit : logit / row.temperature + gumbel_from_word(word(token));
  }
  // Below it an approximate score cannot belong to the best. What rounds differently in scores is
  // a few units of the last place of a scaled logit, which is not 23 larger than its score.
  __device__ float border(float best) const {
    if (row.greedy() || !is_finite(best)) return best;
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

struct Chunk {
  float value[values_per_thread];

  __device__ static int index(int i) {
    return (i / 4 * threads + static_cast<int>(threadIdx.x)) * 4 + i % 4;
  }
  // What lies at or past `end` becomes -infinity.
  __device__ void load(const float* row, int first, int end) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(row + first) % sizeof(float4) == 0;
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const int at = first + index(4 * q);
      if (aligned && at + 4 <= end) {
        const float4 four = __ldcs(reinterpret_cast<const float4*>(row + at));
        value[4 * q] = four.x;
        value[4 * q + 1] = four.y;
        value[4 * q + 2] = four.z;
        value[4 * q + 3] = four.w;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) value[4 * q + j] = at + j < end ? row[at + j] : -infinity;
      }
    }
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

// The best choice among a chunk's tokens, per thread. Sets finite to false where a logit is not.
__device__ SampleChoice draw_chunk(const Scorer& scorer, const Chunk& chunk, int first, int end,
                                   int id_begin, bool& finite, Shared& shared) {
  float approximate = -infinity;
#pragma unroll
  for (int i = 0; i < values_per_thread; ++i) {
    const int at = first + Chunk::index(i);
    if (at >= end) continue;
    finite = finite && is_finite(chunk.value[i]);
    const TokenId token = id_begin + at;
    if (!scorer.drawable(chunk.value[i], token)) continue;
    approximate = fmaxf(approximate, scorer.approximate(chunk.value[i], token));
  }
  const float border = scorer.border(block_max(approximate, shared));
  SampleChoice best;
  if (!(approximate >= border) || approximate == -infinity) return best;
#pragma unroll 1
  for (int i = 0; i < values_per_thread; ++i) {
    const int at = first + Chunk::index(i);
    float value = chunk.value[0];  // a run-time index would move the values to memory
#pragma unroll
    for (int j = 1; j < values_per_thread; ++j) value = i == j ? chunk.value[j] : value;
    const TokenId token = id_begin + at;
    if (at >= end || !scorer.drawable(value, token)) continue;
    if (!(scorer.approximate(value, token) >= border)) continue;
    best = better_of(best, {scorer.exact(value, token), token});
  }
  return best;
}

__global__ void __launch_bounds__(threads) draw_kernel(DrawCall call) {
  __shared__ Shared shared;
  const int slice = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  SampleChoice* out = call.choices + static_cast<std::ptrdiff_t>(row) * call.slices + slice;
  Scorer scorer;
  scorer.row = read_draw_row(call.sample, row);
  if (scorer.row.padding) {
    if (threadIdx.x == 0) *out = {0, 0};
    return;
  }
  scorer.inverse_temperature = 1 / scorer.row.temperature;
  scorer.filtered = call.thresholds != nullptr && scorer.row.filtered();
  if (scorer.filtered) scorer.threshold = call.thresholds[row];
  const float* logits = call.sample.logits + static_cast<std::ptrdiff_t>(row) * call.sample.stride;
  const int begin = min(slice * call.slice_width, call.sample.vocabulary_rows);
  const int end = min(begin + call.slice_width, call.sample.vocabulary_rows);
  SampleChoice best;
  bool finite = true;
  for (int first = begin; first < end; first += threads * values_per_thread) {
    Chunk chunk;
    chunk.load(logits, first, end);
    best = better_of(
        best, draw_chunk(scorer, chunk, first, end, call.sample.vocabulary_begin, finite, shared));
    __syncthreads();
  }
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
  draw_kernel<<<grid, threads, 0, stream>>>(call);
  return launched("sample_local");
}

Status sample_merge(const SampleCall& call, const SampleChoice* choices, TokenId* tokens,
                    Stream stream) {
  CHECK(call.rows > 0 && call.world_size > 0 && call.world_size <= limits::world_size);
  merge_kernel<<<(call.rows + warps - 1) / warps, threads, 0, stream>>>(
      call.rows, call.world_size, sample_slices(call), choices, tokens);
  return launched("sample_merge");
}

}  // namespace copse::kernels::cuda
