#pragma once
// What drawing yields and what bounds it, for host and GPU alike.
#include <cstdint>

#include "base/types.h"

namespace copse::kernels {

// Below it a temperature means argmax, as in the published reference.
inline constexpr float sample_temperature_min = 1e-5f;

// Which tokens of a row may be drawn: place(scaled logit, id) >= threshold and mass(scaled logit)
// >= min_mass (sample_filter.h). The default keeps all.
struct SampleThreshold {
  std::uint64_t place = 0;
  std::uint64_t mass = 0;
  float largest = 0;  // scaled logit, over all ranks
  int id_bits = 24;
};

inline constexpr TokenId sample_not_finite = -1;    // the row has a NaN or infinite logit
inline constexpr TokenId sample_none = 0x7FFFFFFF;  // this rank has no token to offer

struct SampleChoice {
  float score = 0;
  TokenId token = sample_none;
};

}  // namespace copse::kernels
