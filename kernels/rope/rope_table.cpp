#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/rope/rope.h"

namespace copse::kernels {
namespace {

// YaRN: the dimension (of dim / 2 pairs) that turns `rotations` times over the original positions.
double correction_dim(const RopeSpec& spec, double rotations) {
  return spec.dim * std::log(spec.original_positions / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(spec.theta));
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor > 1.0 ? 0.1 * mscale * std::log(factor) + 1.0 : 1.0;
}

RopeTable make_rope_table(const RopeSpec& spec) {
  CHECK(spec.dim > 0 && spec.dim % 2 == 0 && spec.theta > 1.0);
  const bool yarn = spec.factor > 1.0;
  CHECK(!yarn || spec.original_positions > 0);
  const int pairs = spec.dim / 2;
  // Bounds of the blend: pairs below `low` keep their frequency, pairs above `high` are divided.
  float low = 0;
  float high = 0;
  if (yarn) {
    low = static_cast<float>(std::max(std::floor(correction_dim(spec, spec.beta_fast)), 0.0));
    high = static_cast<float>(
        std::min(std::ceil(correction_dim(spec, spec.beta_slow)), spec.dim - 1.0));
    if (low == high) high += 0.001f;
  }
  RopeTable table;
  table.attention_factor = static_cast<float>(spec.attention_factor);
  table.inv_freq.resize(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.dim);
    const float wavelength = std::pow(static_cast<float>(spec.theta), exponent);
    float frequency = 1.0f / wavelength;
    if (yarn) {
      const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
      const float kept = 1.0f - ramp;
      const float divided = 1.0f / (static_cast<float>(spec.factor) * wavelength);
      frequency = divided * (1.0f - kept) + frequency * kept;
    }
    table.inv_freq[static_cast<std::size_t>(i)] = frequency;
  }
  return table;
}

void rope_angles(const RopeTable& table, std::span<const std::int32_t> positions,
                 std::span<float> angles) {
  const std::size_t pairs = table.inv_freq.size();
  CHECK(angles.size() == positions.size() * 2 * pairs);
  for (std::size_t row = 0; row < positions.size(); ++row) {
    float* cosines = angles.data() + row * 2 * pairs;
    for (std::size_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(positions[row]) * table.inv_freq[i];
      cosines[i] = std::cos(angle) * table.attention_factor;
      cosines[pairs + i] = std::sin(angle) * table.attention_factor;
    }
  }
}

}  // namespace copse::kernels
