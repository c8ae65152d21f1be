#include <cmath>

#include "base/check.h"
#include "kernels/rope/rope.h"

namespace copse::kernels::ref {

void rope(const RopeHeads& x, std::span<const float> angles, int dim, RopePairs pairs) {
  CHECK(dim % 2 == 0 && angles.size() == static_cast<std::size_t>(x.rows * dim));
  for (int r = 0; r < x.rows; ++r) {
    const float* cosines = angles.data() + static_cast<std::ptrdiff_t>(r) * dim;
    const float* sines = cosines + dim / 2;
    for (int h = 0; h < x.heads; ++h) {
      float* head = x.data + r * x.row_stride + h * x.head_stride;
      for (int i = 0; i < dim / 2; ++i) {
        float& a = head[pairs == RopePairs::interleaved ? 2 * i : i];
        float& b = head[pairs == RopePairs::interleaved ? 2 * i + 1 : i + dim / 2];
        const float rotated_a = a * cosines[i] - b * sines[i];
        const float rotated_b = b * cosines[i] + a * sines[i];
        a = rotated_a;
        b = rotated_b;
      }
    }
  }
}

}  // namespace copse::kernels::ref
