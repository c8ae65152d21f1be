// A warp copies a row, a block a few rows of one layer and sequence; blocks behind a sequence's
// count end at once.
#include <cuda_runtime.h>

#include "base/bf16.h"
#include "base/limits.h"
#include "kernels/common/cuda/status.h"
#include "kernels/kv_commit/kv_commit_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int warps = 8;
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
  const auto layer = static_cast<std::ptrdiff_t>(blockIdx.x);
  const int s = static_cast<int>(blockIdx.y);
  const int slot = call.entry_slot[s];
  if (slot < 0) return;
  const int first = static_cast<int>(blockIdx.z) * block_rows;
  const int last = min(first + block_rows, call.counts[s]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* scratch = call.scratch + (layer * call.slots + slot) * call.scratch_rows * call.width;
  T* pages = call.pages + layer * call.pages_count * limits::page_tokens * call.width;
  const PageId* table = call.page_tables + static_cast<std::ptrdiff_t>(slot) * call.table_pages;
  for (int i = first + static_cast<int>(threadIdx.x) / 32; i < last; i += warps) {
    const int row = call.accepted == nullptr ? i : call.accepted[s * call.accepted_stride + i];
    const int position = call.first_position[s] + i;
    const std::ptrdiff_t page = table[position / limits::page_tokens];
    const std::ptrdiff_t to = page * limits::page_tokens + position % limits::page_tokens;
    copy_row<Word>(scratch + static_cast<std::ptrdiff_t>(row) * call.width, pages + to * call.width,
                   call.width, lane);
  }
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
    kv_commit_kernel<T, uint4><<<grid, 32 * warps, 0, stream>>>(call);
  } else {
    kv_commit_kernel<T, T><<<grid, 32 * warps, 0, stream>>>(call);
  }
  return launched("kv_commit");
}

template Status kv_commit(const KvCommitCall<float>&, Stream);
template Status kv_commit(const KvCommitCall<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
