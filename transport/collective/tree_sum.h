#pragma once
// The arithmetic of a reduction: one node of the tree of docs/decisions/0002 at a time. A sum of
// two floats does not depend on their order, so a node may add whichever side came first.
#include <cstddef>
#include <cstdint>

#include "transport/collective/collective.h"

namespace copse {

// sum[i] += other[i] for i in [0, count). The ranges do not overlap.
void add_into(float* sum, const float* other, std::size_t count);
void add_into(std::uint64_t* sum, const std::uint64_t* other, std::size_t count);

// Exact: every bfloat16 is a float32.
void widen(float* to, const Bf16* from, std::size_t count);

// To nearest, ties to even; a NaN stays a (quiet) NaN.
void round_to_bf16(Bf16* to, const float* from, std::size_t count);

}  // namespace copse
