#pragma once
// The one tolerance of every kernel test. A float32 sum of n products errs by at most about
// n * 2^-24 of the sum of the products' magnitudes, in any order; the bound is that, with `steps`
// for roundings beside the sum (a division, an exponential), against a float64 expectation.
#include <cmath>

namespace copse::kernels {

// expected: computed in float64. magnitude: the sum of |term| (for one value: its own magnitude).
// terms: how many float32 roundings stand between the inputs and `actual`.
inline bool within_tolerance(double actual, double expected, double magnitude, int terms) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  constexpr double unit = 0x1p-24;
  constexpr double smallest = 0x1p-126;  // results below the normal range may flush
  return std::abs(actual - expected) <= terms * unit * magnitude + terms * smallest;
}

}  // namespace copse::kernels
