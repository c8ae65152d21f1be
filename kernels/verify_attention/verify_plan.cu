// The plan: the longest run of blocks is chosen so that the most loaded worker ends soonest.
#include <cuda_runtime.h>

#include <climits>

#include "kernels/common/cuda/status.h"
#include "kernels/verify_attention/verify_plan.cuh"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;

__device__ int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

struct Lengths {
  int tiles[verify_sequences_max];
  int blocks[verify_sequences_max];
};

// Of a sequence with this many blocks, cut into runs of at most `run`.
__device__ int partials_of(const VerifyPlanShape& shape, int tiles, int splits) {
  if (shape.prefix_only) return tiles * (splits + 1);
  return splits > 1 ? tiles * splits : 0;
}

__device__ int cost_of(const VerifyPlanShape& shape, const Lengths& lengths, int run) {
  int items = 0;
  int partials = 0;
  for (int s = 0; s < shape.sequences; ++s) {
    const int splits = ceil_div(lengths.blocks[s], run);
    items += lengths.tiles[s] * splits;
    partials += partials_of(shape, lengths.tiles[s], splits);
  }
  if (partials > shape.partials_max) return INT_MAX;
  const long long cost = static_cast<long long>(ceil_div(items, shape.workers)) *
                             (static_cast<long long>(run) * shape.block_cost + shape.item_cost) +
                         (partials > 0 ? shape.merge_cost : 0);
  return static_cast<int>(cost < INT_MAX ? cost : INT_MAX - 1);
}

__device__ VerifyItem item_of(const VerifySequence& sequence, const VerifyPlanSequence& plan, int s,
                              int index) {
  VerifyItem item = {};
  item.sequence = s;
  item.tile = index % plan.tiles;
  item.split = index / plan.tiles;
  item.splits = plan.splits;
  const auto bound = [&](int split) {
    return static_cast<int>(static_cast<long long>(plan.blocks) * split / plan.splits);
  };
  item.first_block = bound(item.split);
  item.last_block = bound(item.split + 1);
  item.prefix_blocks = plan.prefix_blocks;
  item.partial = plan.first_partial + index;
  item.tiles = plan.tiles;
  item.first_row = sequence.first_row;
  item.rows = sequence.rows;
  item.prefix_length = sequence.prefix_length;
  item.slot = sequence.slot;
  item.mask_words = sequence.mask_words;
  item.pages = sequence.pages;
  item.ancestors = sequence.ancestors;
  for (int i = 0; i < 4; ++i) {
    const int block = item.first_block + i;
    if (block < min(item.last_block, plan.prefix_blocks)) item.first_pages[i] = item.pages[block];
  }
  return item;
}

__global__ void __launch_bounds__(threads)
    plan_kernel(VerifyPlanShape shape, const VerifySequence* sequences, VerifyWorkspace workspace) {
  __shared__ Lengths lengths;
  __shared__ int prefix_blocks[verify_sequences_max];
  __shared__ int costs[threads];
  __shared__ int runs[threads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < shape.partials_max; i += threads) workspace.counters[i] = 0;
  if (thread < shape.sequences) {
    const int rows = sequences[thread].rows;
    const int prefix = ceil_div(sequences[thread].prefix_length, verify_block_tokens);
    prefix_blocks[thread] = prefix;
    lengths.tiles[thread] = ceil_div(rows * shape.heads, shape.tile_queries);
    lengths.blocks[thread] = prefix + (shape.prefix_only ? 0 : ceil_div(rows, verify_block_tokens));
  }
  __syncthreads();
  int longest = 1;
  for (int s = 0; s < shape.sequences; ++s) {
    if (lengths.tiles[s] > 0) longest = max(longest, lengths.blocks[s]);
  }
  int best_cost = INT_MAX;
  int best_run = longest;
  for (int run = longest - thread; run >= 1; run -= threads) {
    const int cost = cost_of(shape, lengths, run);
    if (cost < best_cost) {
      best_cost = cost;
      best_run = run;
    }
  }
  costs[thread] = best_cost;
  runs[thread] = best_run;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (thread < half) {
      const int other = thread + half;
      if (costs[other] < costs[thread] ||
          (costs[other] == costs[thread] && runs[other] > runs[thread])) {
        costs[thread] = costs[other];
        runs[thread] = runs[other];
      }
    }
    __syncthreads();
  }
  __shared__ VerifyPlanSequence planned[verify_sequences_max];
  if (thread == 0) {
    int items = 0;
    int partials = 0;
    for (int s = 0; s < shape.sequences; ++s) {
      const int tiles = lengths.tiles[s];
      const int splits = tiles == 0 ? 0 : ceil_div(lengths.blocks[s], runs[0]);
      planned[s] = {items, partials, splits, tiles, lengths.blocks[s], prefix_blocks[s]};
      workspace.plan->sequences[s] = planned[s];
      items += tiles * splits;
      partials += partials_of(shape, tiles, splits);
    }
    workspace.plan->items = items;
  }
  __syncthreads();
  for (int s = 0; s < shape.sequences; ++s) {
    const VerifySequence sequence = sequences[s];
    for (int i = thread; i < planned[s].tiles * planned[s].splits; i += threads) {
      workspace.items[planned[s].first_item + i] = item_of(sequence, planned[s], s, i);
    }
  }
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

std::size_t verify_workspace_layout(const VerifyPlanShape& shape, int latent, void* base,
                                    VerifyWorkspace* workspace) {
  auto* bytes = static_cast<std::byte*>(base);
  std::size_t offset = 0;
  const auto take = [&](std::size_t size) {
    std::byte* part = bytes == nullptr ? nullptr : bytes + offset;
    offset += aligned(size);
    return part;
  };
  const auto partials = static_cast<std::size_t>(shape.partials_max);
  const auto queries = partials * static_cast<std::size_t>(shape.tile_queries);
  VerifyWorkspace result;
  result.plan = reinterpret_cast<VerifyPlan*>(take(sizeof(VerifyPlan)));
  result.items = reinterpret_cast<VerifyItem*>(
      take(static_cast<std::size_t>(shape.items_max) * sizeof(VerifyItem)));
  result.counters = reinterpret_cast<unsigned*>(take(partials * sizeof(unsigned)));
  result.stats = reinterpret_cast<float2*>(take(queries * sizeof(float2)));
  result.partials =
      reinterpret_cast<float*>(take(queries * static_cast<std::size_t>(latent) * sizeof(float)));
  if (workspace != nullptr) *workspace = result;
  return offset;
}

Status launch_verify_plan(const VerifyPlanShape& shape, const VerifySequence* sequences,
                          const VerifyWorkspace& workspace, Stream stream) {
  plan_kernel<<<1, threads, 0, stream>>>(shape, sequences, workspace);
  return launched("verify_plan");
}

}  // namespace copse::kernels::cuda
