#pragma once
// Products of few rows, for compute capability 9.0: what costs is reading the weights. They are
// read once, and as much of them as there is room for before the kernel in front has ended.
// README.md says how near this comes to the speed of memory; linear_cuda.cpp chooses between it and
// the library.
//
// A block of the grid holds 64 outputs of a slice of the inputs; a cluster of 1, 2, 4 or 8 blocks
// shares the slices and adds its sums through distributed shared memory, in one order. Bulk tensor
// copies bring weights and rows in stages of 128 inputs; two warpgroups multiply (wgmma, weights as
// the 64 rows, rows of x as the columns).
#include <cstdint>
#include <span>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/linear/linear_cuda.h"

namespace copse::kernels::cuda::stream_gemm {

inline constexpr int rows_max = 64;

// Whether a shape is computed here: on this GPU, in bf16, with strides that bulk copies take, and
// where it is not slower than the library.
bool serves(const GemmShape& shape);
// Once per shape, before its first launch.
Status prepare(const GemmShape& shape);

struct Part {
  const GemmShape* shape = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
};

// Blocks that share out the inputs of a tile: enough that every multiprocessor has one, of four
// stages at least. A function of the shapes and the GPU alone.
int cluster_of(std::span<const Part> parts);
// One product, or two (without a batch) of the same x, rows and inputs.
Status launch(std::span<const Part> parts, int cluster, const void* x, Stream stream);

}  // namespace copse::kernels::cuda::stream_gemm
