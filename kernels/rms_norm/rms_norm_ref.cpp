#include <cmath>

#include "base/check.h"
#include "kernels/common/tree_sum.h"
#include "kernels/rms_norm/rms_norm.h"

namespace copse::kernels::ref {

void rms_norm(ConstMatrix x, std::span<const float> weight, float eps, Matrix y) {
  const int dim = x.columns;
  CHECK(y.rows == x.rows && y.columns == dim && static_cast<int>(weight.size()) == dim);
  for (int r = 0; r < x.rows; ++r) {
    float partials[sum_partials] = {};
    for (int i = 0; i < dim; ++i) {
      float& partial = partials[i % sum_partials];
      partial = std::fma(x.row(r)[i], x.row(r)[i], partial);
    }
    const float mean = tree_sum16(partials) / static_cast<float>(dim);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (int i = 0; i < dim; ++i) {
      y.row(r)[i] = weight[static_cast<std::size_t>(i)] * (x.row(r)[i] * scale);
    }
  }
}

}  // namespace copse::kernels::ref
