#include "transport/collective/tree_sum.h"

namespace copse {

void add_into(float* __restrict sum, const float* __restrict other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
}

void add_into(std::uint64_t* __restrict sum, const std::uint64_t* __restrict other,
              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += other[i];
}

void widen(float* __restrict to, const Bf16* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

void round_to_bf16(Bf16* __restrict to, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

}  // namespace copse
