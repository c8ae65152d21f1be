// A warp copies a row, a block a few rows of one layer and sequence; warps behind a sequence's
// count end at once.
#include <cuda_runtime.h>

#include "base/bf16.h"
#include "base/limits.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/kv_commit/kv_commit_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int warps = 16;
constexpr int block_rows = 16;

template <class Word, class T>
__device__ void copy_row(const T* from, T* to, int width, int lane) {
  constexpr int values = static_cast<int>(sizeof(Word) / sizeof(T));
  const auto* source = reinterpret_cast<const Word*>(from);
  auto* target = reinterpret_cast<Word*>(to);
#pragma unroll 4
  for (int i = lane; i < width / values; i += 32) target[i] = source[i];
}

template <class T, class Word>
__global__ void __launch_bounds__(32 * warps) kv_commit_kernel(KvCommitCall<T> call) {
  static_assert(block_rows == warps);
  let_next_start();
  wait_for_previous();
  const auto layer = static_cast<std::ptrdiff_t>(blockIdx.x);
  const int s = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.z) * block_rows + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Independent of each other, so that they are fetched at once.
  const int slot = call.entry_slot[s];
  const int count = call.counts[s];
  const int position = call.first_position[s] + i;
  int row = i;
  if (call.accepted != nullptr && i < call.rows_max) {
    row = call.accepted[s * call.accepted_stride + i];
  }
  if (slot < 0 || i >= count) return;
  const T* scratch = call.scratch + (layer * call.slots + slot) * call.scratch_rows * call.width;
  T* pages = call.pages + layer * call.pages_count * limits::page_tokens * call.width;
  const std::ptrdiff_t page =
      call.page_tables[static_cast<std::ptrdiff_t>(slot) * call.table_pages +
                       position / limits::page_tokens];
  const std::ptrdiff_t to = page * limits::page_tokens + position % limits::page_tokens;
  copy_row<Word>(scratch + static_cast<std::ptrdiff_t>(row) * call.width, pages + to * call.width,
                 call.width, lane);
}

}  // namespace

template <class T>
Status kv_commit(const KvCommitCall<T>& call, Stream stream) {
  CHECK(call.layers > 0 && call.sequences > 0 && call.rows_max > 0 && call.width > 0);
  CHECK(call.accepted == nullptr || call.accepted_stride >= call.rows_max);
  const dim3 grid(static_cast<unsigned>(call.layers), static_cast<unsigned>(call.sequences),
                  static_cast<unsigned>((call.rows_max + block_rows - 1) / block_rows));
  const bool aligned = static_cast<std::size_t>(call.width) * sizeof(T) % sizeof(uint4) == 0;
  if (aligned) {
    return launch_early("kv_commit", kv_commit_kernel<T, uint4>, {grid, 32 * warps}, stream, call);
  }
  return launch_early("kv_commit", kv_commit_kernel<T, T>, {grid, 32 * warps}, stream, call);
}

template Status kv_commit(const KvCommitCall<float>&, Stream);
template Status kv_commit(const KvCommitCall<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
