#pragma once
// A layer's experts on one rank:
//
//   y[r] = sum over chosen experts e of weight[r][e] * down_e(silu(gate_e(x[r])) * up_e(x[r]))
//        + down_s(silu(gate_s(x[r])) * up_s(x[r]))                      (the shared expert, if any)
//
// y is this rank's part; all_reduce_sum of the ranks' parts is the layer's output.
//
// Order (docs/decisions/0002): a rank holds `leaves` leaves. Within a leaf the token's experts are
// fused in ascending order of id, then the shared expert's part is added; then the leaves are added
// as the binary tree. Sharded by inner dimension, leaf l of every expert is the l-th equal part of
// the rank's inner dimension. Sharded by whole experts, leaf l is the l-th equal part of the rank's
// experts (each summed over its whole inner dimension); the shared expert is split by inner
// dimension in both. A leaf in which a token has no expert is zero before the shared expert's part.
//
// x [rows][hidden], y [rows][hidden], not overlapping; ids and weights [rows][experts_per_token],
// ids ascending and distinct within a row, of all experts (those of other ranks are passed over).
// GPU: INT4 or FP8 weights dequantized in the product, rows sorted by expert on the device, the
// same two phases.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/common/matrix.h"
#include "kernels/common/thread_pool.h"
#include "kernels/linear/linear.h"

namespace copse::kernels {

struct ExpertWeights {
  PackedWeight gate;  // [inner of this rank][hidden]
  PackedWeight up;    // [inner of this rank][hidden]
  PackedWeight down;  // [hidden][inner of this rank]
};

struct MoeLayer {
  std::span<const ExpertWeights> experts;  // of this rank, ids first_expert ...
  int first_expert = 0;
  bool whole_experts = false;  // sharded by experts, not by inner dimension
  // 1, 2, 4 or 8; divides the inner dimension of each expert, or the number of experts of this rank
  // where whole_experts, and the shared expert's inner dimension.
  int leaves = 1;
  const ExpertWeights* shared = nullptr;
};

// Allocated once for the largest call; no call allocates. Sizes are this rank's; inner and
// shared_inner may be 0.
struct MoeWorkspace {
  MoeWorkspace() = default;
  MoeWorkspace(int rows_max, int experts_per_token, int experts, int inner, int shared_inner,
               int hidden);
  std::size_t bytes() const;

  int rows_max = 0;
  std::vector<std::int32_t> first_pair;  // [experts + 2] pairs sorted by expert, then by row
  std::vector<std::int32_t> pair_row;    // [rows_max * experts_per_token]
  std::vector<float> pair_weight;        // likewise
  std::vector<float> activation;         // [pairs][inner], each row padded to 16
  std::vector<float> shared_activation;  // [rows_max][shared_inner], likewise
  std::vector<float> leaf_sums;  // [hidden / 16][4][rows_max][16]: pending levels of the tree
};

void moe_experts(ConstMatrix x, std::span<const std::int32_t> ids, std::span<const float> weights,
                 int experts_per_token, const MoeLayer& layer, Matrix y, MoeWorkspace& workspace,
                 ThreadPool& pool);

// Weights of the experts that were touched (each once) and of the shared expert, x, y, activations.
std::uint64_t moe_experts_bytes_moved(ConstMatrix x, std::span<const std::int32_t> ids,
                                      const MoeLayer& layer);

namespace ref {
void moe_experts(ConstMatrix x, std::span<const std::int32_t> ids, std::span<const float> weights,
                 int experts_per_token, const MoeLayer& layer, Matrix y);
}

}  // namespace copse::kernels
