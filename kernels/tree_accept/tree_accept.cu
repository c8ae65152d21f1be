// Whether a row continues its parent's path depends on the row alone: its token is the parent's
// target. So all rows answer that at once, the first child that does becomes its parent's next, and
// the walk is a chase of pointers in shared memory.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/cuda/launch.cuh"
#include "kernels/tree_accept/tree_accept_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int rows_max = 1 + limits::tree_nodes;
constexpr int walk_max = limits::draft_block + 1;
constexpr int no_row = 0x7FFFFFFF;

struct Walk {
  TokenId targets[rows_max];
  int next[rows_max];  // the first child whose token is the row's target
  int length;
  int first_end;  // of the walk's tokens
};

// Lanes look at the walk's tokens; the first end token among those that may be emitted is the last.
__device__ void cut(const TreeAcceptCall& call, const DeviceSlot& slot, int s,
                    const std::int32_t* accepted, Walk& walk) {
  const int lane = static_cast<int>(threadIdx.x);
  const int most = min(walk.length, slot.remaining);
  const int ends = slot.ignore_end != 0 ? 0 : slot.end_token_count;
  for (int i = lane; i < most; i += 32) {
    const TokenId token = walk.targets[accepted[i]];
    for (int e = 0; e < ends; ++e) {
      if (slot.end_tokens[e] == token) atomicMin(&walk.first_end, i);
    }
  }
  __syncwarp();
  if (lane != 0) return;
  const bool at_end = walk.first_end < most;
  call.walk_length[s] = walk.length;
  call.kept[s] = at_end ? walk.first_end + 1 : most;
  call.at_end[s] = at_end ? 1 : 0;
}

__global__ void tree_accept_kernel(TreeAcceptCall call) {
  __shared__ Walk walk;
  __shared__ std::int32_t accepted[walk_max];
  const int s = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(s) * call.rows_per_sequence;
  let_next_start();
  wait_for_previous();
  const int rows = call.rows[s];
  if (rows == 0) {
    if (thread == 0) call.walk_length[s] = call.kept[s] = call.at_end[s] = 0;
    return;
  }
  for (int i = thread; i < rows; i += threads) {
    walk.targets[i] = call.targets[first + i];
    walk.next[i] = no_row;
  }
  if (thread == 0) walk.first_end = no_row;
  __syncthreads();
  for (int i = thread; i < rows; i += threads) {
    const int parent = call.row_parents[first + i];
    if (i > 0 && call.row_tokens[first + i] == walk.targets[parent]) {
      atomicMin(&walk.next[parent], i);
    }
  }
  __syncthreads();
  if (thread >= 32) return;
  if (thread == 0) {
    int length = 0;
    for (int row = 0; row != no_row && length < walk_max; row = walk.next[row]) {
      accepted[length++] = row;
    }
    walk.length = length;
  }
  __syncwarp();
  for (int i = thread; i < walk.length; i += 32) call.accepted[s * walk_max + i] = accepted[i];
  cut(call, call.slots[call.entry_slot[s]], s, accepted, walk);
}

}  // namespace

Status tree_accept(const TreeAcceptCall& call, Stream stream) {
  CHECK(call.sequences > 0 && call.rows_per_sequence > 0 && call.rows_per_sequence <= rows_max);
  const auto blocks = static_cast<unsigned>(call.sequences);
  const auto threads =
      static_cast<unsigned>(std::min((call.rows_per_sequence + 31) / 32 * 32, 512));
  return launch_early("tree_accept", tree_accept_kernel, {blocks, threads}, stream, call);
}

}  // namespace copse::kernels::cuda
