#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "base/check.h"
#include "kernels/common/lanes-inl.h"
#include "kernels/rms_norm/rms_norm.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

void rms_norm_rows(const ConstMatrix& x, const float* weight, float eps, const Matrix& y, int first,
                   int last) {
  const int dim = x.columns;
  const int whole = dim / 16 * 16;
  for (int r = first; r < last; ++r) {
    const float* from = x.row(r);
    float* to = y.row(r);
    Lanes squares = zero();
    for (int i = 0; i < whole; i += 16) {
      const Lanes value = load(from + i);
      squares = fma(value, value, squares);
    }
    if (whole < dim) {
      const Lanes value = load_first(from + whole, dim - whole);
      squares = fma(value, value, squares);
    }
    const float mean = tree_sum(squares) / static_cast<float>(dim);
    const Lanes scale = broadcast(1.0f / std::sqrt(mean + eps));
    for (int i = 0; i < whole; i += 16) {
      store(mul(load(weight + i), mul(load(from + i), scale)), to + i);
    }
    if (whole < dim) {
      const Lanes value = mul(load_first(from + whole, dim - whole), scale);
      store_first(mul(load_first(weight + whole, dim - whole), value), to + whole, dim - whole);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace copse::kernels {
namespace {

HWY_EXPORT(rms_norm_rows);

constexpr int grain_floats = 1 << 15;  // a few microseconds

}  // namespace

void rms_norm(ConstMatrix x, std::span<const float> weight, float eps, Matrix y, ThreadPool& pool) {
  CHECK(y.rows == x.rows && y.columns == x.columns && x.columns > 0);
  CHECK(static_cast<int>(weight.size()) == x.columns);
  const auto rows = HWY_DYNAMIC_DISPATCH(rms_norm_rows);
  pool.parallel_for(0, x.rows, std::max(1, grain_floats / x.columns),
                    [&](int first, int last) { rows(x, weight.data(), eps, y, first, last); });
}

std::uint64_t rms_norm_bytes_moved(int rows, int dim) {
  return sizeof(float) * static_cast<std::uint64_t>(dim) *
         (2 * static_cast<std::uint64_t>(rows) + 1);
}

}  // namespace copse::kernels
#endif
