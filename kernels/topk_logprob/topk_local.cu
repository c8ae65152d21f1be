// One block a slice of a row. The values stay in registers from the one time that they are read:
// their exponentials are added, and each thread's largest value votes on a threshold that at least
// k values reach, and few more. Those few are ranked by counting.
#include <cuda_runtime.h>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/topk_logprob/topk_logprob_cuda.h"
#include "kernels/topk_logprob/topk_select.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int quads = 5;  // float4 of a thread at a time
constexpr int values_per_thread = 4 * quads;
constexpr int samples = 2 * limits::tree_top_k;
constexpr int capacity = 1024;  // candidates that are ranked by counting
constexpr int rank_lanes = 8;   // threads that share one candidate's counting
constexpr int found_room = capacity + limits::tree_top_k + 2 * rank_lanes;
constexpr float log2_e = 1.44269504f;
constexpr float infinity = __builtin_huge_valf();

__device__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Largest value and sum of exponentials relative to it, of any part of a slice.
struct Leaf {
  float largest;
  float sum;
};

__device__ Leaf rebase(Leaf leaf, float largest) {
  if (leaf.largest == largest) return leaf;
  return {largest, leaf.sum * exp2_fast((leaf.largest - largest) * log2_e)};
}

template <int Threads>
struct Shared {
  TopkKey kept[limits::tree_top_k];  // best of the chunks before, descending
  alignas(16) TopkKey found[found_room];
  alignas(16) std::uint32_t sample[samples];
  Leaf leaves[Threads / 32];
  Leaf leaf;                // of the chunk
  std::uint32_t threshold;  // order that k values of the chunk reach
  int found_count;
  int counted;
};

template <int Threads>
struct Chunk {
  static constexpr int size = Threads * values_per_thread;
  float value[values_per_thread];
  int begin;  // inside the shard

  __device__ static int index_in_chunk(int i) {
    return (i / 4 * Threads + static_cast<int>(threadIdx.x)) * 4 + i % 4;
  }
  __device__ void load(const float* row, int first, int end) {
    begin = first;
    const bool aligned = reinterpret_cast<std::uintptr_t>(row + first) % sizeof(float4) == 0;
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const int at = first + index_in_chunk(4 * q);
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
  __device__ Leaf leaf() const {
    Leaf result = {-infinity, 0};
#pragma unroll
    for (int i = 0; i < values_per_thread; ++i) result.largest = fmaxf(result.largest, value[i]);
    // Minus infinity less itself would be NaN.
    const float base = result.largest == -infinity ? 0.0f : result.largest;
#pragma unroll
    for (int i = 0; i < values_per_thread; ++i) {
      result.sum += exp2_fast((value[i] - base) * log2_e);
    }
    return result;
  }
};

// The leaves of the warps, joined by the first one.
template <int Threads>
__device__ void join_leaves(Shared<Threads>& shared) {
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  const Leaf leaf = lane < Threads / 32 ? shared.leaves[lane] : Leaf{-infinity, 0};
  const float largest = warp_max(leaf.largest);
  const float sum = warp_sum(rebase(leaf, largest).sum);
  if (lane == 0) shared.leaf = {largest, sum};
}

// Each warp's part of the leaf, and the largest value of each few threads as a sample; clears what
// the chunk's candidates are collected in.
template <int Threads>
__device__ void summarize(const Leaf& mine, Shared<Threads>& shared) {
  constexpr int lanes = Threads / samples;
  const int thread = static_cast<int>(threadIdx.x);
  const float warp_largest = warp_max(mine.largest);
  const float warp_total = warp_sum(rebase(mine, warp_largest).sum);
  if (thread % 32 == 0) shared.leaves[thread / 32] = {warp_largest, warp_total};
  float largest = mine.largest;
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  if (thread % lanes == 0) shared.sample[thread / lanes] = topk_order(largest);
  for (int i = thread; i < found_room; i += Threads) shared.found[i] = 0;
  if (thread == 0) shared.found_count = 0;
}

// The k-th largest sample: each sample is a value of its own, so k values reach it.
template <int Threads>
__device__ void choose_threshold(int k, Shared<Threads>& shared) {
  constexpr int lanes = Threads / samples;
  const int mine = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const std::uint32_t order = shared.sample[mine];
  int larger = 0;
#pragma unroll 4
  for (int at = 4 * lane; at < samples; at += 4 * lanes) {
    const uint4 four = *reinterpret_cast<const uint4*>(shared.sample + at);
    const std::uint32_t other[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      larger += other[j] > order || (other[j] == order && at + j < mine) ? 1 : 0;
    }
  }
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    larger += __shfl_xor_sync(0xffffffffu, larger, distance);
  }
  if (lane == 0 && larger == k - 1) shared.threshold = order;
}

template <int Threads, class Wanted>
__device__ void collect(const Chunk<Threads>& chunk, int id_begin, const Wanted& wanted,
                        Shared<Threads>& shared) {
#pragma unroll
  for (int i = 0; i < values_per_thread; ++i) {
    if (!wanted(chunk.value[i], Chunk<Threads>::index_in_chunk(i))) continue;
    const int at = atomicAdd(&shared.found_count, 1);
    const int token = id_begin + chunk.begin + Chunk<Threads>::index_in_chunk(i);
    if (at < capacity) {
      shared.found[at] = topk_key(topk_order(chunk.value[i]), static_cast<std::uint32_t>(token));
    }
  }
}

template <int Threads>
__device__ void collect_exactly(const Chunk<Threads>& chunk, int id_begin, int k,
                                Shared<Threads>& shared) {
  const auto count = [&](const auto& predicate) {
    int mine = 0;
#pragma unroll
    for (int i = 0; i < values_per_thread; ++i) {
      mine += predicate(topk_order(chunk.value[i]), Chunk<Threads>::index_in_chunk(i)) ? 1 : 0;
    }
    if (threadIdx.x == 0) shared.counted = 0;
    __syncthreads();
    mine = __reduce_add_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0) atomicAdd(&shared.counted, mine);
    __syncthreads();
    const int all = shared.counted;
    __syncthreads();
    return all;
  };
  const TopkBorder border = find_border(k, count);
  for (int i = static_cast<int>(threadIdx.x); i < found_room; i += Threads) shared.found[i] = 0;
  if (threadIdx.x == 0) shared.found_count = 0;
  __syncthreads();
  collect(
      chunk, id_begin,
      [&](float value, int index) {
        const std::uint32_t order = topk_order(value);
        return order > border.order || (order == border.order && index < border.index_end);
      },
      shared);
  __syncthreads();
}

// Calls take(place, key) for the k best of `count` found keys that are not 0; those all differ, and
// zeros follow them.
template <int Threads, class Take>
__device__ void rank_found(int count, int k, const Take& take, const Shared<Threads>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % rank_lanes;
  for (int first = 0; first < count; first += Threads / rank_lanes) {
    const int mine = first + static_cast<int>(threadIdx.x) / rank_lanes;
    const TopkKey key = mine < count ? shared.found[mine] : 0;
    int larger = 0;
#pragma unroll 4
    for (int i = 2 * lane; i < count; i += 2 * rank_lanes) {
      const ulonglong2 two = *reinterpret_cast<const ulonglong2*>(shared.found + i);
      larger += (two.x > key ? 1 : 0) + (two.y > key ? 1 : 0);
    }
#pragma unroll
    for (int distance = rank_lanes / 2; distance > 0; distance /= 2) {
      larger += __shfl_xor_sync(0xffffffffu, larger, distance);
    }
    if (lane == 0 && key != 0 && larger < k) take(larger, key);
  }
}

// Leaves the chunk's candidates, k of them at least if there are as many, in shared.found, and its
// leaf in shared.leaf. Candidates of an order up to `kept_order` are left out.
template <int Threads>
__device__ void find_candidates(const Chunk<Threads>& chunk, int id_begin, int k,
                                std::uint32_t kept_order, Shared<Threads>& shared) {
  summarize(chunk.leaf(), shared);
  __syncthreads();
  choose_threshold(k, shared);
  join_leaves(shared);
  __syncthreads();
  constexpr std::uint32_t lowest_finite = 0x00800000u;
  const float reach =
      value_of_topk_order(max(max(shared.threshold, kept_order + 1), lowest_finite));
  collect(
      chunk, id_begin, [=](float value, int) { return value >= reach; }, shared);
  __syncthreads();
  if (shared.found_count > capacity) collect_exactly(chunk, id_begin, k, shared);
}

struct LocalCall {
  TopkShape shape;
  const float* logits;
  TopkWord* part;
  int slices;
  int slice_width;
};

// Where a block's slice lies and goes.
struct Slice {
  const float* logits;  // the row's
  int begin;
  int end;
  TopkWord* out;

  __device__ explicit Slice(const LocalCall& call) {
    const auto row = static_cast<std::ptrdiff_t>(blockIdx.y);
    const int slice = static_cast<int>(blockIdx.x);
    logits = call.logits + row * call.shape.stride;
    begin = min(slice * call.slice_width, call.shape.vocabulary_rows);
    end = min(begin + call.slice_width, call.shape.vocabulary_rows);
    out = call.part + (row * call.slices + slice) * (1 + call.shape.k);
  }
};

template <int Threads>
__global__ void __launch_bounds__(Threads) one_chunk_kernel(LocalCall call) {
  __shared__ Shared<Threads> shared;
  wait_for_previous();
  const Slice slice(call);
  const int thread = static_cast<int>(threadIdx.x);
  const int k = call.shape.k;
  Chunk<Threads> chunk;
  chunk.load(slice.logits, slice.begin, slice.end);
  find_candidates(chunk, call.shape.vocabulary_begin, k, 0, shared);
  // Not before: blocks of the next kernel would take room that blocks of this one wait for.
  let_next_start();
  const int found = shared.found_count;
  rank_found(
      found, k, [&](int place, TopkKey key) { slice.out[1 + place] = topk_word(key); }, shared);
  if (thread >= found && thread < k) slice.out[1 + thread] = topk_word(0);
  if (thread == 0) slice.out[0] = {shared.leaf.largest, __float_as_uint(shared.leaf.sum)};
}

// The best so far take part in the ranking of the next chunk.
template <int Threads>
__global__ void __launch_bounds__(Threads) many_chunks_kernel(LocalCall call) {
  __shared__ Shared<Threads> shared;
  let_next_start();
  wait_for_previous();
  const Slice slice(call);
  const int thread = static_cast<int>(threadIdx.x);
  const int k = call.shape.k;
  const int kept_here = min(thread, limits::tree_top_k - 1);
  if (thread < limits::tree_top_k) shared.kept[thread] = 0;
  Leaf all = {-infinity, 0};
  __syncthreads();
  for (int first = slice.begin; first < slice.end; first += Chunk<Threads>::size) {
    Chunk<Threads> chunk;
    chunk.load(slice.logits, first, slice.end);
    // What was kept has lower ids, so an equal logit of this chunk loses.
    const auto kept_order = static_cast<std::uint32_t>(shared.kept[k - 1] >> 32);
    find_candidates(chunk, call.shape.vocabulary_begin, k, kept_order, shared);
    const float largest = fmaxf(all.largest, shared.leaf.largest);
    all = {largest, rebase(all, largest).sum + rebase(shared.leaf, largest).sum};
    const int found = shared.found_count;
    if (thread < k) shared.found[found + thread] = shared.kept[kept_here];
    __syncthreads();
    rank_found(
        found + k, k, [&](int place, TopkKey key) { shared.kept[place] = key; }, shared);
    __syncthreads();
  }
  if (thread == 0) slice.out[0] = {all.largest, __float_as_uint(all.sum)};
  if (thread < k) slice.out[1 + thread] = topk_word(shared.kept[kept_here]);
}

}  // namespace

Status topk_logprob_local(const TopkShape& shape, const float* logits, TopkWord* part,
                          Stream stream) {
  CHECK(shape.k >= 1 && shape.k <= limits::tree_top_k && shape.rows > 0);
  CHECK(shape.stride >= shape.vocabulary_rows && shape.vocabulary_rows <= limits::vocabulary);
  LocalCall call = {shape, logits, part, topk_slices(shape), 0};
  // Of the largest shard, so that slices lie alike on every rank.
  const int local = (shape.vocabulary + shape.world_size - 1) / shape.world_size;
  call.slice_width = (local + call.slices - 1) / call.slices;
  const dim3 grid(static_cast<unsigned>(call.slices), static_cast<unsigned>(shape.rows));
  constexpr int small = 128;
  constexpr int large = 1024;
  if (call.slice_width <= Chunk<small>::size) {
    return launch_early("topk_logprob_local", one_chunk_kernel<small>, {grid, small}, stream, call);
  }
  if (call.slice_width <= Chunk<large>::size) {
    return launch_early("topk_logprob_local", one_chunk_kernel<large>, {grid, large}, stream, call);
  }
  return launch_early("topk_logprob_local", many_chunks_kernel<large>, {grid, large}, stream, call);
}

}  // namespace copse::kernels::cuda
