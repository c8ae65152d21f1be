#pragma once
// Where the parts of moe_experts' workspace begin.
#include "kernels/moe_experts/moe_experts_cuda.h"
#include "kernels/moe_experts/moe_warps.h"

namespace copse::kernels::cuda {

// The state: a barrier's word, then a count for each tile of 16 outputs.
inline constexpr int moe_tiles_max = 4032;
inline constexpr std::size_t moe_barrier_bytes = 256;

// Parts of the inputs of the second product, each with products of its own: by the shape alone, so
// that a row's sum does not depend on the call.
constexpr int down_parts(const ExpertShape& shape) {
  const int parts = expert_layout::divide_up(shape.down().blocks(), held_blocks(shape.codec));
  return parts > 0 ? parts : 1;
}

struct MoeWorkspaceParts {
  std::size_t tile_counts = moe_barrier_bytes;
  std::size_t activations = 0;  // T [pairs][activation_stride]
  std::size_t products = 0;     // float [pairs][down_parts][hidden], without the router's weight
  std::size_t sorted = 0;       // int32, see moe_sort.cuh
  std::size_t bytes = 0;
};

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr int activation_stride(const ExpertShape& shape) {
  return static_cast<int>(round_up(static_cast<std::size_t>(shape.inner), 8));
}

// Words of moe_sort.cuh's lists, at most: one entry for each expert and for each eight pairs.
constexpr std::size_t sorted_words(const ExpertShape& shape, std::size_t pairs) {
  return 2 * (static_cast<std::size_t>(shape.experts) + pairs / 8 + 2) + pairs;
}

constexpr MoeWorkspaceParts moe_workspace_parts(const ExpertShape& shape, int rows,
                                                int experts_per_token) {
  const std::size_t pairs =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(experts_per_token);
  MoeWorkspaceParts parts;
  parts.activations = round_up(moe_barrier_bytes + moe_tiles_max * sizeof(std::int32_t), 256);
  parts.products =
      parts.activations +
      round_up(pairs * static_cast<std::size_t>(activation_stride(shape)) * sizeof(float), 256);
  parts.sorted =
      parts.products + round_up(pairs * static_cast<std::size_t>(down_parts(shape)) *
                                    static_cast<std::size_t>(shape.hidden) * sizeof(float),
                                256);
  parts.bytes = parts.sorted + round_up(sorted_words(shape, pairs) * sizeof(std::int32_t), 256);
  return parts;
}

}  // namespace copse::kernels::cuda
