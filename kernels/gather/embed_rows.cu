#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/common/cuda/launch.cuh"
#include "kernels/common/cuda/number.cuh"
#include "kernels/gather/gather_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int threads = 256;

// One block a row of at most `columns_per_block` values, so that a single row is not one block's.
constexpr int columns_per_block = 2048;

template <class T>
__global__ void __launch_bounds__(threads) embed_kernel(EmbedRows<T> call) {
  let_next_start();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t token = std::int64_t{call.tokens[row]} - call.first;
  const bool held = token >= 0 && token < call.count && call.tokens[row] >= 0;
  const int begin = static_cast<int>(blockIdx.y) * columns_per_block;
  const int end = min(begin + columns_per_block, call.hidden);
#pragma unroll 8
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += threads) {
    call.out[row * call.hidden + i] = held ? to_float(call.table[token * call.hidden + i]) : 0.0f;
  }
}

}  // namespace

template <class T>
Status embed_rows(const EmbedRows<T>& call, Stream stream) {
  CHECK(call.rows >= 0 && call.hidden > 0 && call.count >= 0 && call.first >= 0);
  if (call.rows == 0) return {};
  const dim3 grid(static_cast<unsigned>(call.rows),
                  static_cast<unsigned>((call.hidden + columns_per_block - 1) / columns_per_block));
  return launch_early("embed_rows", embed_kernel<T>, {grid, dim3(threads)}, stream, call);
}

template Status embed_rows(const EmbedRows<float>&, Stream);
template Status embed_rows(const EmbedRows<Bf16>&, Stream);

}  // namespace copse::kernels::cuda
