#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/gather/gather_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int words_per_thread = 4;
constexpr std::int64_t row_bytes_max = std::int64_t{1} << 24;

template <class Word>
__global__ void __launch_bounds__(threads) copy_kernel(CopyRows call) {
  let_next_start();
  wait_for_previous();
  const std::int64_t index = call.index[blockIdx.x];
  const auto* from = static_cast<const std::byte*>(call.from) + index * call.from_stride;
  auto* to = static_cast<std::byte*>(call.out) + std::int64_t{blockIdx.x} * call.out_stride;
  const auto words = static_cast<int>(call.row_bytes / static_cast<int>(sizeof(Word)));
  const int begin = static_cast<int>(blockIdx.y) * threads * words_per_thread;
#pragma unroll
  for (int j = 0; j < words_per_thread; ++j) {
    const int i = begin + j * threads + static_cast<int>(threadIdx.x);
    if (i >= words) return;
    Word word = {};
    if (index >= 0) word = reinterpret_cast<const Word*>(from)[i];
    reinterpret_cast<Word*>(to)[i] = word;
  }
}

template <class Word>
bool fits(const CopyRows& call) {
  constexpr std::int64_t bytes = sizeof(Word);
  const auto whole = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Word) == 0;
  };
  return call.row_bytes % bytes == 0 && call.from_stride % bytes == 0 &&
         call.out_stride % bytes == 0 && whole(call.from) && whole(call.out);
}

template <class Word>
Status launch(const CopyRows& call, Stream stream) {
  const std::int64_t words = call.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  constexpr std::int64_t per_block = threads * words_per_thread;
  const dim3 grid(static_cast<unsigned>(call.count),
                  static_cast<unsigned>((words + per_block - 1) / per_block));
  return launch_early("copy_rows", copy_kernel<Word>, {grid, dim3(threads)}, stream, call);
}

}  // namespace

Status copy_rows(const CopyRows& call, Stream stream) {
  CHECK(call.row_bytes > 0 && call.row_bytes <= row_bytes_max && call.count >= 0);
  if (call.count == 0) return {};
  if (fits<uint4>(call)) return launch<uint4>(call, stream);
  if (fits<std::uint32_t>(call)) return launch<std::uint32_t>(call, stream);
  if (fits<std::uint16_t>(call)) return launch<std::uint16_t>(call, stream);
  return launch<std::uint8_t>(call, stream);
}

}  // namespace copse::kernels::cuda
