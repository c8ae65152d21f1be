// One block a row. A candidate's place is its own place in its slice's list and the number of
// better ones in each other list, found by bisection: all candidates at once.
#include <cuda_runtime.h>

#include "kernels/common/cuda/status.h"
#include "kernels/topk_logprob/topk_logprob_cuda.h"
#include "kernels/topk_logprob/topk_select.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int lists_max = limits::reduction_leaves;
constexpr int threads = lists_max * limits::tree_top_k;

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

// Slices in vocabulary order, joined as ((0+1)+(2+3))+((4+5)+(6+7)).
__device__ float log_sum_exp(Leaf* leaves, int count) {
  for (int width = 1; width < count; width *= 2) {
    for (int i = 0; i + width < count; i += 2 * width)
      leaves[i] = join(leaves[i], leaves[i + width]);
  }
  return leaves[0].largest + logf(leaves[0].sum);
}

// How many of a descending list come before `key`; of equal keys (0: none) if `equal_first`.
__device__ int better_in(const TopkKey* list, int k, TopkKey key, bool equal_first) {
  int low = 0;
  int high = k;
  while (low < high) {
    const int middle = (low + high) / 2;
    const bool before = list[middle] > key || (equal_first && list[middle] == key);
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low;
}

__global__ void __launch_bounds__(threads) topk_merge_kernel(MergeCall call) {
  __shared__ TopkKey keys[lists_max][limits::tree_top_k];
  __shared__ Leaf leaves[lists_max];
  __shared__ float lse;
  const auto row = static_cast<std::ptrdiff_t>(blockIdx.x);
  const int k = call.shape.k;
  const int lists = call.shape.world_size * call.slices;
  const int thread = static_cast<int>(threadIdx.x);
  const int list = thread / limits::tree_top_k;
  const int place = thread % limits::tree_top_k;
  const std::ptrdiff_t part_words =
      static_cast<std::ptrdiff_t>(call.shape.rows) * call.slices * (1 + k);
  const TopkWord* words = call.parts + list / call.slices * part_words +
                          (row * call.slices + list % call.slices) * (1 + k);
  if (list < lists && place < k) keys[list][place] = topk_key(words[1 + place]);
  if (list < lists && place == 0) {
    leaves[list] = {words[0].value, __uint_as_float(words[0].bits)};
  }
  __syncthreads();
  if (thread == 0) lse = log_sum_exp(leaves, lists);
  int rank = k;
  TopkKey key = 0;
  if (list < lists && place < k) {
    key = keys[list][place];
    rank = place;
    for (int other = 0; other < lists; ++other) {
      if (other != list) rank += better_in(keys[other], k, key, other < list);
    }
  }
  __syncthreads();
  if (rank >= k) return;
  const TopkWord word = topk_word(key);
  call.log_probs[row * k + rank] = word.value - lse;
  call.token_ids[row * k + rank] = static_cast<TokenId>(word.bits);
}

}  // namespace

Status topk_logprob_merge(const TopkShape& shape, const TopkWord* parts, float* log_probs,
                          TokenId* token_ids, Stream stream) {
  const int slices = topk_slices(shape);
  CHECK(shape.k >= 1 && shape.k <= limits::tree_top_k && shape.rows > 0);
  CHECK(shape.world_size * slices <= lists_max);
  topk_merge_kernel<<<shape.rows, threads, 0, stream>>>(
      {shape, parts, log_probs, token_ids, slices});
  return launched("topk_logprob_merge");
}

}  // namespace copse::kernels::cuda
