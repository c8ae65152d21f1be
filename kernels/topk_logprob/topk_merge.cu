// One block a row. A candidate's place is the number of better ones in all lists, found by
// bisection in all of them at once; one warp more joins the leaves meanwhile.
#include <cuda_runtime.h>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/topk_logprob/topk_logprob_cuda.h"
#include "kernels/topk_logprob/topk_select.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int lists_max = limits::reduction_leaves;
constexpr int candidates = lists_max * limits::tree_top_k;
constexpr int threads = candidates + 32;

struct MergeCall {
  TopkShape shape;
  const TopkWord* parts;
  float* log_probs;
  TokenId* token_ids;
  int slices;
};

struct Leaf {
  float largest;
  float sum;
};

__device__ Leaf join(Leaf a, Leaf b) {
  const float largest = a.largest > b.largest ? a.largest : b.largest;
  if (largest == -__int_as_float(0x7f800000)) return {largest, a.sum + b.sum};
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

// Slices in vocabulary order, joined as ((0+1)+(2+3))+((4+5)+(6+7)), by one warp.
__device__ float log_sum_exp(Leaf leaf) {
#pragma unroll
  for (int distance = 1; distance < lists_max; distance *= 2) {
    leaf = join(leaf, {__shfl_xor_sync(0xffffffffu, leaf.largest, distance),
                       __shfl_xor_sync(0xffffffffu, leaf.sum, distance)});
  }
  return leaf.largest + logf(leaf.sum);
}

// Part of one list in the gathered parts: its leaf, then its candidates.
__device__ const TopkWord* list_words(const MergeCall& call, std::ptrdiff_t row, int list) {
  const int words = 1 + call.shape.k;
  const std::ptrdiff_t rank = list / call.slices;
  return call.parts + ((rank * call.shape.rows + row) * call.slices + list % call.slices) * words;
}

using Lists = TopkKey[lists_max][limits::tree_top_k];

// How many keys of a descending list are better.
__device__ int better_in(const TopkKey (&list)[limits::tree_top_k], TopkKey key) {
  int better = 0;
#pragma unroll
  for (int step = limits::tree_top_k / 2; step > 0; step /= 2) {
    better += list[better + step - 1] > key ? step : 0;
  }
  return better + (list[better] > key ? 1 : 0);
}

// Whether no candidate of the warp can be among the k best, since its first one is not.
__device__ bool warp_is_beaten(const Lists& lists, TopkKey key, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TopkKey first = __shfl_sync(0xffffffffu, key, 0);
  const int better = lane < lists_max ? better_in(lists[lane], first) : 0;
  return __reduce_add_sync(0xffffffffu, better) >= k;
}

__global__ void __launch_bounds__(threads) topk_merge_kernel(MergeCall call) {
  __shared__ Lists lists;
  __shared__ float lse;
  const auto row = static_cast<std::ptrdiff_t>(blockIdx.x);
  const int k = call.shape.k;
  const int count = call.shape.world_size * call.slices;
  const int thread = static_cast<int>(threadIdx.x);
  const int list = thread / limits::tree_top_k;
  const int place = thread % limits::tree_top_k;
  TopkKey key = 0;
  let_next_start();
  wait_for_previous();
  if (thread < candidates) {
    if (list < count && place < k) key = topk_key(list_words(call, row, list)[1 + place]);
    lists[list][place] = key;
  } else {
    Leaf leaf = {-__int_as_float(0x7f800000), 0};
    if (thread - candidates < count) {
      const TopkWord word = *list_words(call, row, thread - candidates);
      leaf = {word.value, __uint_as_float(word.bits)};
    }
    const float sum = log_sum_exp(leaf);
    if (thread == candidates) lse = sum;
  }
  const int present = __syncthreads_count(key != 0 ? 1 : 0);
  int rank = key == 0 ? k : 0;
  if (place >= 32 && thread < candidates && warp_is_beaten(lists, key, k)) rank = k;
  if (rank < k) {
#pragma unroll
    for (int other = 0; other < lists_max; ++other) rank += better_in(lists[other], key);
  }
  float* log_probs = call.log_probs + row * k;
  TokenId* token_ids = call.token_ids + row * k;
  if (rank < k) {
    const TopkWord word = topk_word(key);
    log_probs[rank] = word.value - lse;
    token_ids[rank] = static_cast<TokenId>(word.bits);
  }
  if (thread >= present && thread < k) {
    log_probs[thread] = topk_word(0).value - lse;
    token_ids[thread] = 0;
  }
}

}  // namespace

Status topk_logprob_merge(const TopkShape& shape, const TopkWord* parts, float* log_probs,
                          TokenId* token_ids, Stream stream) {
  const int slices = topk_slices(shape);
  CHECK(shape.k >= 1 && shape.k <= limits::tree_top_k && shape.rows > 0);
  CHECK(shape.world_size * slices <= lists_max);
  const MergeCall call = {shape, parts, log_probs, token_ids, slices};
  return launch_early("topk_logprob_merge", topk_merge_kernel,
                      {static_cast<unsigned>(shape.rows), threads}, stream, call);
}

}  // namespace copse::kernels::cuda
