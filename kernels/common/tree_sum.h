#pragma once
// How partial sums are joined, everywhere (docs/decisions/0002).

namespace copse::kernels {

inline constexpr int sum_partials = 16;

// The 16 partial sums of one reduction: j with j + 8, then + 4, + 2, + 1.
inline float tree_sum16(const float (&partials)[sum_partials]) {
  float sums[8];
  for (int j = 0; j < 8; ++j) sums[j] = partials[j] + partials[j + 8];
  for (int half = 4; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// Leaves 0 .. count - 1 (a power of two) as ((0+1)+(2+3))+((4+5)+(6+7)); leaves are overwritten.
inline float tree_sum_leaves(float* leaves, int count) {
  for (int width = 1; width < count; width *= 2) {
    for (int i = 0; i + width < count; i += 2 * width) leaves[i] += leaves[i + width];
  }
  return leaves[0];
}

}  // namespace copse::kernels
