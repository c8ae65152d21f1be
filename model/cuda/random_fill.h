#pragma once
// Random numbers into device memory, for weights without a checkpoint.
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace copse {

// Uniform in [centre - spread, centre + spread); waits for the device. T is float or Bf16.
template <class T>
Status random_fill(T* values, std::size_t count, float centre, float spread, std::uint64_t seed);

}  // namespace copse
