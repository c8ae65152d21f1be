// Plain loops that the compiler vectorizes: rotation is a thousandth of a forward pass. Products
// and sums are rounded one by one (no fusion), as in the reference.
#include <algorithm>

#include "base/check.h"
#include "kernels/rope/rope.h"

namespace copse::kernels {
namespace {

void rotate_interleaved(float* head, const float* cosines, const float* sines, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rotate_halves(float* head, const float* cosines, const float* sines, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float a = head[i];
    const float b = head[i + pairs];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + pairs] = b * cosines[i] + a * sines[i];
  }
}

constexpr int grain_floats = 1 << 14;  // a few microseconds

}  // namespace

void rope(const RopeHeads& x, std::span<const float> angles, int dim, RopePairs pairs,
          ThreadPool& pool) {
  CHECK(dim > 0 && dim % 2 == 0 && x.heads > 0);
  CHECK(angles.size() == static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(dim));
  const int grain = std::max(1, grain_floats / (x.heads * dim));
  pool.parallel_for(0, x.rows, grain, [&](int first, int last) {
    for (int r = first; r < last; ++r) {
      const float* cosines = angles.data() + static_cast<std::ptrdiff_t>(r) * dim;
      for (int h = 0; h < x.heads; ++h) {
        float* head = x.data + r * x.row_stride + h * x.head_stride;
        if (pairs == RopePairs::interleaved) {
          rotate_interleaved(head, cosines, cosines + dim / 2, dim / 2);
        } else {
          rotate_halves(head, cosines, cosines + dim / 2, dim / 2);
        }
      }
    }
  });
}

std::uint64_t rope_bytes_moved(int rows, int heads, int dim) {
  return sizeof(float) * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(dim) *
         (2 * static_cast<std::uint64_t>(heads) + 1);
}

}  // namespace copse::kernels
