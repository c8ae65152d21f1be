#pragma once
// The order of tokens that filters speak of, and their probability mass, both as integers.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "base/types.h"
#include "kernels/common/exp.h"
#include "kernels/sample/sample_choice.h"

namespace copse::kernels {

// One unit of the largest token's mass; a vocabulary of 2^20 of them still fits 64 bits.
inline constexpr float sample_mass_unit = 0x1p43f;

// Unnormalised probability of a token whose scaled logit is `scaled`, in fixed point.
COPSE_HOST_DEVICE inline std::uint64_t sample_mass(float scaled, float largest) {
  return static_cast<std::uint64_t>(exp_fixed(scaled - largest) * sample_mass_unit);
}

// Grows with the value; zeros of both signs are one.
COPSE_HOST_DEVICE inline std::uint32_t ordered_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
COPSE_HOST_DEVICE inline float value_of_ordered_bits(std::uint32_t ordered) {
  return std::bit_cast<float>((ordered >> 31) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

// A token's place in the order (larger scaled logit, then lower id): larger is better, all differ.
COPSE_HOST_DEVICE inline std::uint64_t sample_place(float scaled, TokenId token, int id_bits) {
  const std::uint64_t ids = (std::uint64_t{1} << id_bits) - 1;
  return (static_cast<std::uint64_t>(ordered_bits(scaled)) << id_bits) |
         (ids - static_cast<std::uint64_t>(token));
}

COPSE_HOST_DEVICE inline bool passes(const SampleThreshold& threshold, float scaled,
                                     TokenId token) {
  if (sample_place(scaled, token, threshold.id_bits) < threshold.place) return false;
  return threshold.mass == 0 || sample_mass(scaled, threshold.largest) >= threshold.mass;
}

COPSE_HOST_DEVICE inline bool better_choice(const SampleChoice& a, const SampleChoice& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

}  // namespace copse::kernels
