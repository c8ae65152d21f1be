#pragma once
// A layer's experts on one GPU, as kernels/moe_experts/moe_experts.h without the shared expert:
//
//   y[r] = sum over the row's chosen experts e of this rank of
//          weight[r][e] * down_e(silu(gate_e(x[r])) * up_e(x[r]))
//
// Weights stay in their codec in memory (expert_layout.h) and are widened in registers. Products
// are summed in float32, what stands between the two products is rounded to T, and a row's experts
// are added in ascending order of id. The same inputs give the same bits; in float32 a row's result
// does not depend on the other rows at all, in bf16 its last bits may depend on how many rows share
// an expert. Nothing is allocated or read on the host: a call can be captured, and its grid depends
// on the device alone.
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/moe_experts/expert_layout.h"

namespace copse::kernels::cuda {

// What one rank holds of a layer: experts first_expert .. first_expert + experts - 1, and of each
// `inner` of its inner dimension. experts and inner may be 0: y is then zero.
struct ExpertShape {
  int hidden = 0;
  int inner = 0;
  int experts = 0;
  int first_expert = 0;
  ExpertCodec codec = ExpertCodec::bf16;

  constexpr expert_layout::Packed gate_up() const { return {codec, inner, hidden, true}; }
  constexpr expert_layout::Packed down() const { return {codec, hidden, inner, false}; }
  // Of one expert: gate and up, then down, padded to 256. Expert i of the layer begins at i times
  // this.
  constexpr std::size_t expert_bytes() const {
    return (gate_up().bytes() + down().bytes() + 255) / 256 * 256;
  }
  constexpr std::size_t layer_bytes() const {
    return static_cast<std::size_t>(experts) * expert_bytes();
  }
};

// A matrix as checkpoints store it, whole or this rank's slice, row-major and without gaps, in
// memory that the device can read.
//   bf16, f32   values [rows][columns]
//   fp8_block   bytes [rows][columns]; scales float [ceil(rows / 128)][ceil(columns / 128)], so a
//               slice begins at multiples of 128
//   int4_*      words [rows][columns / 8], columns a multiple of 8, lowest nibble first, value =
//               nibble - 8; scales bf16 or float [rows][ceil(columns / 32)], so a slice begins at a
//               multiple of 32 columns
struct StoredMatrix {
  const void* values = nullptr;
  const void* scales = nullptr;
};
struct StoredExpert {
  StoredMatrix gate;  // [inner][hidden]
  StoredMatrix up;    // [inner][hidden]
  StoredMatrix down;  // [hidden][inner]
};

// Writes one expert's weights, expert_bytes() at `packed` (aligned to 256), from `stored`.
Status pack_expert(const ExpertShape& shape, const StoredExpert& stored, std::byte* packed,
                   Stream stream);
// Writes all experts of a layer with plausible random weights, of standard deviation about
// 1 / sqrt(inputs): for measurements without a checkpoint.
Status random_experts(const ExpertShape& shape, std::uint64_t seed, std::byte* packed,
                      Stream stream);

// x [rows][hidden]; ids and weights [rows][experts_per_token] as kernels/moe_route gives them: ids
// ascending and distinct within a row, of all experts (those of other ranks are passed over); a row
// of padding has ids -1 and its y is zero. y [rows][hidden], written whole. All begin at multiples
// of 16 bytes.
template <class T>
struct MoeExperts {
  const T* x = nullptr;
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;
  int rows = 0;               // <= limits::step_rows
  int experts_per_token = 0;  // <= limits::experts_per_token
  ExpertShape shape;
  const std::byte* packed = nullptr;  // [experts][expert_bytes]
  float* y = nullptr;
  std::byte* workspace = nullptr;  // aligned to 256
  std::size_t workspace_bytes = 0;
};

// Enough for every call of up to `rows` rows; layers with equal or smaller dimensions can share it
// when their calls follow each other. The first moe_experts_state_bytes of it must be zero before
// the first call; every call leaves them fit for the next. The rest may hold anything.
std::size_t moe_experts_workspace_bytes(const ExpertShape& shape, int rows, int experts_per_token);
std::size_t moe_experts_state_bytes();

template <class T>
Status moe_experts(const MoeExperts<T>& call, Stream stream);

namespace portable {
// The same by plain loops over octets, for every codec, dimension and T. moe_experts uses it where
// the fast version does not apply: float32, or dimensions that are not multiples of 8.
template <class T>
Status moe_experts(const MoeExperts<T>& call, Stream stream);
}  // namespace portable

}  // namespace copse::kernels::cuda
