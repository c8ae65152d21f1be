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
  int rows[verify_sequences_max];
  int blocks[verify_sequences_max];
};

__device__ int tiles_of(const VerifyPlanShape& shape, const VerifyTiling& tiling, int rows) {
  return ceil_div(rows * shape.heads, tiling.tile_queries);
}

// Of a sequence with this many tiles, each cut into `splits` runs.
__device__ int partials_of(const VerifyPlanShape& shape, int tiles, int splits) {
  if (shape.prefix_only) return tiles * (splits + 1);
  return splits > 1 ? tiles * splits : 0;
}

// When the most loaded worker ends, if runs have at most `run` blocks.
__device__ int cost_of(const VerifyPlanShape& shape, const VerifyTiling& tiling,
                       const Lengths& lengths, int run) {
  int items = 0;
  int partials = 0;
  for (int s = 0; s < shape.sequences; ++s) {
    const int splits = ceil_div(lengths.blocks[s], run);
    if (splits > shape.workers) return INT_MAX;  // more than the merge has room for
    const int tiles = tiles_of(shape, tiling, lengths.rows[s]);
    items += tiles * splits;
    partials += partials_of(shape, tiles, splits);
  }
  if (partials > shape.partials_max) return INT_MAX;
  const long long cost = static_cast<long long>(ceil_div(items, shape.workers)) *
                             (static_cast<long long>(run) * tiling.block_cost + tiling.item_cost) +
                         (partials > 0 ? tiling.merge_cost : 0);
  return static_cast<int>(cost < INT_MAX ? cost : INT_MAX - 1);
}

struct Choice {
  int cost;
  int run;
  int tiling;

  __device__ bool better_than(const Choice& other) const {
    if (cost != other.cost) return cost < other.cost;
    return tiling != other.tiling ? tiling < other.tiling : run > other.run;
  }
};

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
  if (item.first_block < plan.prefix_blocks) item.first_page = item.pages[item.first_block];
  return item;
}

__global__ void __launch_bounds__(threads)
    plan_kernel(VerifyPlanShape shape, const VerifySequence* sequences, VerifyWorkspace workspace) {
  __shared__ Lengths lengths;
  __shared__ int prefix_blocks[verify_sequences_max];
  __shared__ Choice choices[threads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < shape.partials_max; i += threads) workspace.counters[i] = 0;
  if (thread < shape.sequences) {
    const int rows = sequences[thread].rows;
    const int prefix = ceil_div(sequences[thread].prefix_length, verify_block_tokens);
    prefix_blocks[thread] = prefix;
    lengths.rows[thread] = rows;
    lengths.blocks[thread] = prefix + (shape.prefix_only ? 0 : ceil_div(rows, verify_block_tokens));
    if (rows == 0) lengths.blocks[thread] = 0;
  }
  __syncthreads();
  int longest = 1;
  for (int s = 0; s < shape.sequences; ++s) longest = max(longest, lengths.blocks[s]);
  // Whole sequences to each worker is always a choice.
  Choice best = {INT_MAX, longest, 0};
  for (int tiling = 0; tiling < shape.tilings_count; ++tiling) {
    for (int run = longest - thread; run >= 1; run -= threads) {
      const Choice choice = {cost_of(shape, shape.tilings[tiling], lengths, run), run, tiling};
      if (choice.better_than(best)) best = choice;
    }
  }
  choices[thread] = best;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (thread < half && choices[thread + half].better_than(choices[thread])) {
      choices[thread] = choices[thread + half];
    }
    __syncthreads();
  }
  best = choices[0];
  const VerifyTiling& tiling = shape.tilings[best.tiling];
  __shared__ VerifyPlanSequence planned[verify_sequences_max];
  if (thread == 0) {
    int items = 0;
    int partials = 0;
    for (int s = 0; s < shape.sequences; ++s) {
      const int tiles = tiles_of(shape, tiling, lengths.rows[s]);
      const int splits = ceil_div(lengths.blocks[s], best.run);
      planned[s] = {items, partials, splits, tiles, lengths.blocks[s], prefix_blocks[s]};
      workspace.plan->sequences[s] = planned[s];
      items += tiles * splits;
      partials += partials_of(shape, tiles, splits);
    }
    workspace.plan->items = items;
  }
  __syncthreads();
  const int items = workspace.plan->items;
  for (int s = 0; s < shape.sequences; ++s) {
    const VerifySequence sequence = sequences[s];
    for (int i = thread; i < planned[s].tiles * planned[s].splits; i += threads) {
      VerifyItem item = item_of(sequence, planned[s], s, i);
      item.items = items;
      item.tile_queries = tiling.tile_queries;
      workspace.items[planned[s].first_item + i] = item;
    }
  }
  for (int i = thread; i < shape.workers; i += threads) {  // where workers see that all is taken
    VerifyItem end = {};
    end.items = items;
    end.tile_queries = tiling.tile_queries;
    workspace.items[items + i] = end;
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
  const auto queries = partials * static_cast<std::size_t>(shape.tile_queries_max());
  VerifyWorkspace result;
  result.plan = reinterpret_cast<VerifyPlan*>(take(sizeof(VerifyPlan)));
  result.items = reinterpret_cast<VerifyItem*>(
      take(static_cast<std::size_t>(shape.items_max + shape.workers) * sizeof(VerifyItem)));
  result.counters = reinterpret_cast<unsigned*>(take(partials * sizeof(unsigned)));
  result.stats = reinterpret_cast<float2*>(take(queries * sizeof(float2)));
  const std::size_t value_bytes = shape.bf16_partials ? sizeof(Bf16) : sizeof(float);
  result.partials = take(queries * static_cast<std::size_t>(latent) * value_bytes);
  if (workspace != nullptr) *workspace = result;
  return offset;
}

Status launch_verify_plan(const VerifyPlanShape& shape, const VerifySequence* sequences,
                          const VerifyWorkspace& workspace, Stream stream) {
  plan_kernel<<<1, threads, 0, stream>>>(shape, sequences, workspace);
  return launched("verify_plan");
}

}  // namespace copse::kernels::cuda
