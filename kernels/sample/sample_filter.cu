// One block a row. A step first narrows the row's threshold by the histogram of the step before,
// which the ranks have added since, then counts the next one.
#include <cuda_runtime.h>

#include "kernels/common/cuda/number.cuh"
#include "kernels/common/cuda/status.h"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_row.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 1024;
constexpr float infinity = __builtin_huge_valf();

__device__ const float* row_logits(const SampleCall& call, int row) {
  return call.logits + static_cast<std::ptrdiff_t>(row) * call.stride;
}

__global__ void __launch_bounds__(threads) maxima_kernel(SampleCall call, float* maxima) {
  __shared__ float largest_of[threads / 32];
  const int row = static_cast<int>(blockIdx.x);
  const DrawRow draw = read_draw_row(call, row);
  if (draw.padding || !draw.filtered()) {
    if (threadIdx.x == 0) maxima[row] = 0;
    return;
  }
  const float* logits = row_logits(call, row);
  float largest = -infinity;
  bool finite = true;
  for (int i = static_cast<int>(threadIdx.x); i < call.vocabulary_rows; i += threads) {
    finite = finite && is_finite(logits[i]);
    if (draw.masked_count == 0 || !draw.is_masked(call.vocabulary_begin + i)) {
      largest = fmaxf(largest, logits[i] / draw.temperature);
    }
  }
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
  finite = __syncthreads_and(finite ? 1 : 0) != 0;
  if (threadIdx.x >= 32) return;
  largest = warp_max(largest_of[threadIdx.x]);
  if (threadIdx.x == 0) maxima[row] = finite ? largest : __int_as_float(0x7fc00000);
}

__device__ FilterRow start_row(const SampleCall& call, const DrawRow& draw, int row,
                               const float* maxima) {
  float largest = -infinity;
  bool finite = true;
  for (int rank = 0; rank < call.world_size; ++rank) {
    const float other = maxima[static_cast<std::ptrdiff_t>(rank) * call.rows + row];
    finite = finite && other == other;
    largest = fmaxf(largest, other);
  }
  finite = finite && is_finite(largest);
  return start_filter_row(draw.top_k, draw.top_p, draw.min_p, sample_id_bits(call.vocabulary),
                          finite, largest);
}

__device__ FilterStage stage_of(int step, int passes) {
  return step < passes ? FilterStage::top_k : FilterStage::top_p;
}

// Takes the histogram of `step` into the row, if it was open in it.
__device__ void narrow(FilterRow& row, int step, const std::uint64_t* bins) {
  const int passes = sample_filter_passes(row.threshold.id_bits);
  const FilterStage stage = stage_of(step, passes);
  if (row.open[static_cast<int>(stage)]) narrow_filter_row(row, stage, step % passes, bins);
}

__global__ void __launch_bounds__(threads)
    step_kernel(SampleCall call, int step, const float* maxima, SampleFilterArrays arrays) {
  __shared__ std::uint64_t bins[sample_bins];
  __shared__ FilterRow state;
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  std::uint64_t* out = arrays.bins + static_cast<std::ptrdiff_t>(row) * sample_bins;
  const DrawRow draw = read_draw_row(call, row);
  if (draw.padding || !draw.filtered()) {
    if (step == 0 && thread < sample_bins) out[thread] = 0;
    if (step == 0 && thread == 0) {
      arrays.states[row] = start_filter_row(0, 1, 0, sample_id_bits(call.vocabulary), false, 0);
    }
    return;
  }
  if (thread < sample_bins) bins[thread] = step > 0 ? out[thread] : 0;
  __syncthreads();
  if (thread == 0) {
    state = step == 0 ? start_row(call, draw, row, maxima) : arrays.states[row];
    if (step > 0) narrow(state, step - 1, bins);
    arrays.states[row] = state;
  }
  __syncthreads();
  if (thread < sample_bins) bins[thread] = 0;
  __syncthreads();
  const int id_bits = state.threshold.id_bits;
  const int passes = sample_filter_passes(id_bits);
  const FilterStage stage = stage_of(step, passes);
  if (state.open[static_cast<int>(stage)]) {
    const int shift = filter_shift(id_bits, step % passes);
    const float* logits = row_logits(call, row);
    for (int i = thread; i < call.vocabulary_rows; i += threads) {
      const TokenId token = call.vocabulary_begin + i;
      if (draw.masked_count > 0 && draw.is_masked(token)) continue;
      const float scaled = logits[i] / draw.temperature;
      const std::uint64_t place = sample_place(scaled, token, id_bits);
      if (!filter_counts(state, shift, place)) continue;
      const std::uint64_t weight =
          stage == FilterStage::top_k ? 1 : sample_mass(scaled, state.threshold.largest);
      atomicAdd(reinterpret_cast<unsigned long long*>(bins + filter_bin(shift, place)), weight);
    }
  }
  __syncthreads();
  if (thread < sample_bins) out[thread] = bins[thread];
}

__global__ void finish_kernel(SampleCall call, SampleFilterArrays arrays,
                              SampleThreshold* thresholds) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= call.rows) return;
  FilterRow state = arrays.states[row];
  narrow(state, sample_filter_steps(call) - 1,
         arrays.bins + static_cast<std::ptrdiff_t>(row) * sample_bins);
  thresholds[row] = state.threshold;
}

}  // namespace

Status sample_filter_maxima(const SampleCall& call, float* maxima, Stream stream) {
  CHECK(call.rows > 0 && call.rows_per_sequence > 0);
  maxima_kernel<<<call.rows, threads, 0, stream>>>(call, maxima);
  return launched("sample_filter_maxima");
}

Status sample_filter_step(const SampleCall& call, int step, const float* maxima,
                          const SampleFilterArrays& arrays, Stream stream) {
  CHECK(step >= 0 && step < sample_filter_steps(call));
  step_kernel<<<call.rows, threads, 0, stream>>>(call, step, maxima, arrays);
  return launched("sample_filter_step");
}

Status sample_filter_finish(const SampleCall& call, const SampleFilterArrays& arrays,
                            SampleThreshold* thresholds, Stream stream) {
  constexpr int finish_threads = 64;
  finish_kernel<<<(call.rows + finish_threads - 1) / finish_threads, finish_threads, 0, stream>>>(
      call, arrays, thresholds);
  return launched("sample_filter_finish");
}

}  // namespace copse::kernels::cuda
