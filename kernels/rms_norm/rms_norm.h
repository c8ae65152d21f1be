#pragma once
// y[r][i] = weight[i] * (x[r][i] / sqrt(mean over i of x[r][i]^2 + eps)). Rows may be heads: a norm
// per head is a matrix of rows * heads rows.
//
// The sum of squares has 16 partial sums whatever the vector width: element i is fused into partial
// i mod 16 in order, and the partials are added as a tree (j with j + 8, then + 4, + 2, + 1).
//
// x and y [rows][dim] float32, may be the same memory; weight [dim]. No alignment, no workspace.
// GPU: one warp or block a row, same shapes.
#include <cstdint>
#include <span>

#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels {

void rms_norm(ConstMatrix x, std::span<const float> weight, float eps, Matrix y, ThreadPool& pool);

// x read, y written, weight once.
std::uint64_t rms_norm_bytes_moved(int rows, int dim);

namespace ref {
void rms_norm(ConstMatrix x, std::span<const float> weight, float eps, Matrix y);
}

}  // namespace copse::kernels
