#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu_cpu.cpp"
#include <hwy/foreach_target.h>

#include "base/check.h"
#include "kernels/common/lanes-inl.h"
#include "kernels/swiglu/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

void swiglu_rows(const ConstMatrix& gate, const ConstMatrix& up, const Matrix& out, int first,
                 int last) {
  const int whole = gate.columns / 16 * 16;
  const int left = gate.columns - whole;
  for (int r = first; r < last; ++r) {
    const float* a = gate.row(r);
    const float* b = up.row(r);
    float* to = out.row(r);
    for (int i = 0; i < whole; i += 16) store(swiglu_lanes(load(a + i), load(b + i)), to + i);
    if (left == 0) continue;
    store_first(swiglu_lanes(load_first(a + whole, left), load_first(b + whole, left)), to + whole,
                left);
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

HWY_EXPORT(swiglu_rows);

constexpr int grain_floats = 1 << 13;  // a few microseconds

}  // namespace

void swiglu(ConstMatrix gate, ConstMatrix up, Matrix out, ThreadPool& pool) {
  CHECK(gate.rows == up.rows && gate.rows == out.rows && gate.columns > 0);
  CHECK(gate.columns == up.columns && gate.columns == out.columns);
  const auto rows = HWY_DYNAMIC_DISPATCH(swiglu_rows);
  pool.parallel_for(0, gate.rows, std::max(1, grain_floats / gate.columns),
                    [&](int first, int last) { rows(gate, up, out, first, last); });
}

std::uint64_t swiglu_bytes_moved(int rows, int columns) {
  return 3 * sizeof(float) * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns);
}

}  // namespace copse::kernels
#endif
