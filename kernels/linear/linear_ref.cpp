#include <cmath>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/common/tree_sum.h"
#include "kernels/linear/linear.h"

namespace copse::kernels::ref {

void linear(ConstMatrix x, const PackedWeight& weight, Matrix y, int leaves) {
  CHECK(x.columns == weight.inputs() && y.columns == weight.outputs() && x.rows == y.rows);
  CHECK(leaves >= 1 && leaves <= limits::reduction_leaves && x.columns % leaves == 0);
  const int leaf_inputs = x.columns / leaves;
  for (int m = 0; m < x.rows; ++m) {
    for (int n = 0; n < y.columns; ++n) {
      float sums[limits::reduction_leaves] = {};
      for (int k = 0; k < x.columns; ++k) {
        float& sum = sums[k / leaf_inputs];
        sum = std::fma(x.row(m)[k], weight.at(n, k), sum);
      }
      y.row(m)[n] = tree_sum_leaves(sums, leaves);
    }
  }
}

}  // namespace copse::kernels::ref
