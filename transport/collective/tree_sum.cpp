#include "transport/collective/tree_sum.h"

#include <bit>

namespace copse {

void add_into(float* __restrict sum, const float* __restrict other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
}

void add_into(std::uint64_t* __restrict sum, const std::uint64_t* __restrict other,
              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
}

void widen(float* __restrict to, const Bf16* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i].bits) << 16);
  }
}

void round_to_bf16(Bf16* __restrict to, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t odd = (bits >> 16) & 1u;
    const std::uint32_t rounded = (bits + 0x7fffu + odd) >> 16;
    // Rounding up could carry a NaN's mantissa into its sign: it keeps its upper half instead.
    const std::uint32_t quiet = (bits >> 16) | 0x40u;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i].bits = static_cast<std::uint16_t>(nan ? quiet : rounded);
  }
}

}  // namespace copse
