// One block a slice of a row. A step first narrows the row's threshold by the histogram of the step
// before, which the ranks have added since (each block for itself), then counts its slice.
#include <cuda_runtime.h>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_row.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = sample_bins;
constexpr int warps = threads / 32;
constexpr int ahead = 8;  // logits of a thread that are fetched at once
constexpr float infinity = __builtin_huge_valf();

struct FilterCall {
  SampleCall sample;
  SampleFilterUse use;
  int step;
  const float* maxima;
  SampleFilterArrays arrays;
  SampleThreshold* thresholds;
  int slices;

  __device__ std::uint64_t* bins(int of_step, int row) const {
    return arrays.bins +
           (static_cast<std::ptrdiff_t>(of_step % 3) * sample.rows + row) * sample_bins;
  }
  __device__ FilterRow* state(int of_step, int row) const {
    return arrays.states + static_cast<std::ptrdiff_t>(of_step % 2) * sample.rows + row;
  }
  __device__ int passes() const { return sample_filter_passes(sample_id_bits(sample.vocabulary)); }
  __device__ FilterStage stage(int of_step) const {
    return use.top_k && of_step < passes() ? FilterStage::top_k : FilterStage::top_p;
  }
};

struct Slice {
  const float* logits;  // the row's
  int begin;
  int end;

  __device__ Slice(const FilterCall& call, int row) {
    const SampleCall& sample = call.sample;
    const int local = (sample.vocabulary + sample.world_size - 1) / sample.world_size;
    const int width = (local + call.slices - 1) / call.slices;
    logits = sample.logits + static_cast<std::ptrdiff_t>(row) * sample.stride;
    begin = min(static_cast<int>(blockIdx.x) * width, sample.vocabulary_rows);
    end = min(begin + width, sample.vocabulary_rows);
  }
};

__global__ void __launch_bounds__(threads) maxima_kernel(FilterCall call, float* maxima) {
  __shared__ float largest_of[warps];
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_previous();
  if (blockIdx.x == 0) call.bins(0, row)[thread] = 0;
  const RowPlace place = read_row_place(call.sample, row);
  float* out = maxima + static_cast<std::ptrdiff_t>(row) * call.slices + blockIdx.x;
  if (thread == 0) *out = 0;
  if (place.padding()) return;
  const DrawRow draw = read_draw_row(call.sample, place);
  if (!draw.filtered()) return;
  const Slice slice(call, row);
  float largest = -infinity;
  bool finite = true;
#pragma unroll 4
  for (int i = slice.begin + thread; i < slice.end; i += threads) {
    const float logit = slice.logits[i];
    finite = finite && is_finite(logit);
    if (draw.masked_count == 0 || !draw.is_masked(call.sample.vocabulary_begin + i)) {
      largest = fmaxf(largest, logit / draw.temperature);
    }
  }
  let_next_start();
  largest = warp_max(largest);
  if (thread % 32 == 0) largest_of[thread / 32] = largest;
  finite = __syncthreads_and(finite ? 1 : 0) != 0;
  if (thread >= 32) return;
  largest = warp_max(thread < warps ? largest_of[thread] : -infinity);
  if (thread == 0) *out = finite ? largest : __int_as_float(0x7fc00000);
}

// By one warp; valid on its first lane.
__device__ FilterRow start_row(const FilterCall& call, const DrawRow& draw, int row) {
  float largest = -infinity;
  bool finite = true;
  const int lists = call.sample.world_size * call.slices;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < lists; i += 32) {
    const std::ptrdiff_t rank = i / call.slices;
    const float other =
        call.maxima[(rank * call.sample.rows + row) * call.slices + i % call.slices];
    finite = finite && other == other;
    largest = fmaxf(largest, other);
  }
  largest = warp_max(largest);
  finite = __all_sync(0xffffffffu, finite) != 0 && is_finite(largest);
  return start_filter_row(draw.top_k, draw.top_p, draw.min_p,
                          sample_id_bits(call.sample.vocabulary), finite, largest);
}

struct Shared {
  FilterRow row;
  std::uint64_t warp_sum[warps];
  std::uint64_t bins[sample_bins];
  std::uint64_t from[sample_bins + 1];  // sum of the bins from each on
};

// Sums of the bins from each thread's own on, into shared.from.
__device__ void sum_bins(std::uint64_t own, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  std::uint64_t sum = own;
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint64_t behind = __shfl_down_sync(0xffffffffu, sum, distance);
    if (thread % 32 + distance < 32) sum += behind;
  }
  if (thread % 32 == 0) shared.warp_sum[thread / 32] = sum;
  __syncthreads();
  for (int warp = thread / 32 + 1; warp < warps; ++warp) sum += shared.warp_sum[warp];
  shared.from[thread] = sum;
  if (thread == 0) shared.from[sample_bins] = 0;
  __syncthreads();
}

// narrow_filter_row by all threads: thread i owns bin i.
__device__ void narrow(FilterStage stage, int pass, std::uint64_t own, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  sum_bins(own, shared);
  FilterRow row = shared.row;
  __syncthreads();
  if (pass == 0 && !start_filter_stage(row, stage, shared.from[0])) {
    if (thread == 0) shared.row = row;
    __syncthreads();
    return;
  }
  const bool reached = shared.from[thread] >= row.target;
  const bool mine = reached ? shared.from[thread + 1] < row.target
                            : thread == 0;  // none is: the last one, as on the CPU
  if (mine) {
    take_filter_digit(row, stage, pass, thread, own, shared.from[thread + 1]);
    shared.row = row;
  }
  __syncthreads();
}

// What a step reads at once, whether its row needs it or not.
struct Before {
  RowPlace place;
  std::uint64_t bin;  // the thread's, of the step before
};

__device__ Before read_before(const FilterCall& call, int row, Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  Before before = {read_row_place(call.sample, row), 0};
  if (call.step > 0) {
    before.bin = call.bins(call.step - 1, row)[thread];
    if (thread == 0) shared.row = *call.state(call.step - 1, row);
  }
  return before;
}

// The row's state before `call.step`, in shared.row.
__device__ void advance(const FilterCall& call, const DrawRow& draw, int row, const Before& before,
                        Shared& shared) {
  if (call.step == 0) {
    if (threadIdx.x < 32) {
      const FilterRow start = start_row(call, draw, row);
      if (threadIdx.x == 0) shared.row = start;
    }
    __syncthreads();
    return;
  }
  __syncthreads();
  const FilterStage stage = call.stage(call.step - 1);
  if (shared.row.open[static_cast<int>(stage)]) {
    narrow(stage, (call.step - 1) % call.passes(), before.bin, shared);
  }
}

// Adds weights to bins that neighbours share: the two commonest bins of a warp are summed first,
// since atomic additions of 64 bits to one place wait for each other.
__device__ void add_to_bins(std::uint64_t* bins, int bin, std::uint64_t weight, bool counted) {
  constexpr int low_bits = 26;  // of a weight: 32 of them fit a word
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int round = 0; round < 2; ++round) {
    const unsigned left = __ballot_sync(0xffffffffu, counted);
    if (left == 0) return;
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const int common = __shfl_sync(0xffffffffu, bin, leader);
    const bool same = counted && bin == common;
    const auto low = static_cast<unsigned>(weight & ((1u << low_bits) - 1));
    const auto high = static_cast<unsigned>(weight >> low_bits);
    const std::uint64_t sum =
        __reduce_add_sync(0xffffffffu, same ? low : 0) +
        (static_cast<std::uint64_t>(__reduce_add_sync(0xffffffffu, same ? high : 0)) << low_bits);
    if (lane == leader) atomicAdd(reinterpret_cast<unsigned long long*>(bins + bin), sum);
    counted = counted && !same;
  }
  if (counted) atomicAdd(reinterpret_cast<unsigned long long*>(bins + bin), weight);
}

__device__ void count(const FilterCall& call, const DrawRow& draw, int row, Shared& shared) {
  const FilterRow state = shared.row;
  const FilterStage stage = call.stage(call.step);
  const int id_bits = state.threshold.id_bits;
  const int shift = filter_shift(id_bits, call.step % call.passes());
  const Slice slice(call, row);
  for (int first = slice.begin; first < slice.end; first += ahead * threads) {
    float logits[ahead];
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
      const int i = first + j * threads + static_cast<int>(threadIdx.x);
      logits[j] = i < slice.end ? slice.logits[i] : 0;
    }
#pragma unroll 1
    for (int j = 0; j < ahead && first + j * threads < slice.end; ++j) {
      float logit = logits[0];  // a run-time index would move the logits to memory
#pragma unroll
      for (int other = 1; other < ahead; ++other) logit = j == other ? logits[other] : logit;
      const int i = first + j * threads + static_cast<int>(threadIdx.x);
      const TokenId token = call.sample.vocabulary_begin + i;
      std::uint64_t place = 0;
      std::uint64_t weight = 0;
      if (i < slice.end && (draw.masked_count == 0 || !draw.is_masked(token))) {
        const float scaled = logit / draw.temperature;
        place = sample_place(scaled, token, id_bits);
        if (filter_counts(state, shift, place)) {
          weight = stage == FilterStage::top_k ? 1 : sample_mass(scaled, state.threshold.largest);
        }
      }
      add_to_bins(shared.bins, filter_bin(shift, place), weight, weight != 0);
    }
  }
}

__global__ void __launch_bounds__(threads) step_kernel(FilterCall call) {
  __shared__ Shared shared;
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_previous();
  if (blockIdx.x == 0) call.bins(call.step + 1, row)[thread] = 0;
  const Before before = read_before(call, row, shared);
  if (before.place.padding()) return;
  const DrawRow draw = read_draw_row(call.sample, before.place);
  if (!draw.filtered()) return;
  shared.bins[thread] = 0;
  advance(call, draw, row, before, shared);
  if (blockIdx.x == 0 && thread == 0) *call.state(call.step, row) = shared.row;
  if (!shared.row.open[static_cast<int>(call.stage(call.step))]) return;
  count(call, draw, row, shared);
  let_next_start();
  __syncthreads();
  if (shared.bins[thread] != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(call.bins(call.step, row) + thread),
              shared.bins[thread]);
  }
}

__global__ void __launch_bounds__(threads) finish_kernel(FilterCall call) {
  __shared__ Shared shared;
  const int row = static_cast<int>(blockIdx.x);
  wait_for_previous();
  const Before before = read_before(call, row, shared);
  if (before.place.padding()) return;
  const DrawRow draw = read_draw_row(call.sample, before.place);
  if (!draw.filtered()) return;
  advance(call, draw, row, before, shared);
  if (threadIdx.x == 0) call.thresholds[row] = shared.row.threshold;
}

FilterCall filter_call(const SampleCall& sample, const SampleFilterUse& use, int step,
                       const float* maxima, const SampleFilterArrays& arrays) {
  CHECK(sample.rows > 0 && sample.rows_per_sequence > 0);
  CHECK(sample.world_size > 0 && sample.world_size <= limits::world_size);
  return {sample, use, step, maxima, arrays, nullptr, sample_slices(sample)};
}

dim3 slices_and_rows(const FilterCall& call) {
  return {static_cast<unsigned>(call.slices), static_cast<unsigned>(call.sample.rows)};
}

}  // namespace

Status sample_filter_maxima(const SampleCall& sample, const SampleFilterArrays& arrays,
                            float* maxima, Stream stream) {
  const FilterCall call = filter_call(sample, {}, 0, nullptr, arrays);
  return launch_early("sample_filter_maxima", maxima_kernel, {slices_and_rows(call), threads},
                      stream, call, maxima);
}

Status sample_filter_step(const SampleCall& sample, const SampleFilterUse& use, int step,
                          const float* maxima, const SampleFilterArrays& arrays, Stream stream) {
  CHECK(step >= 0 && step < sample_filter_steps(sample, use));
  const FilterCall call = filter_call(sample, use, step, maxima, arrays);
  return launch_early("sample_filter_step", step_kernel, {slices_and_rows(call), threads}, stream,
                      call);
}

Status sample_filter_finish(const SampleCall& sample, const SampleFilterUse& use,
                            const float* maxima, const SampleFilterArrays& arrays,
                            SampleThreshold* thresholds, Stream stream) {
  FilterCall call = filter_call(sample, use, sample_filter_steps(sample, use), maxima, arrays);
  call.thresholds = thresholds;
  return launch_early("sample_filter_finish", finish_kernel,
                      {static_cast<unsigned>(sample.rows), threads}, stream, call);
}

}  // namespace copse::kernels::cuda
