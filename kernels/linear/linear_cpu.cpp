#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_cpu.cpp"
#include <hwy/foreach_target.h>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/panel_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

template <int kRows, int kPanels, class Weight>
void linear_tile(ConstMatrix x, int row, const PackedWeight& weight, int panel, Matrix y,
                 int leaves) {
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = x.row(row + r);
  Lanes sums[kRows * kPanels];
  tile_leaves<kRows, kPanels>(rows, panels_of<kPanels, Weight>(weight, panel), weight.inputs(),
                              leaves, sums);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      const int column = (panel + p) * panel_outputs;
      const int left = y.columns - column;
      float* to = y.row(row + r) + column;
      if (left >= panel_outputs) {
        store(sums[r * kPanels + p], to);
      } else {
        store_first(sums[r * kPanels + p], to, left);
      }
    }
  }
}

// All rows against kPanels panels: weights come from memory once and then from the nearest cache.
template <int kPanels, class Weight>
void linear_panels(ConstMatrix x, const PackedWeight& weight, int panel, Matrix y, int leaves) {
  const int tile = even_tile(x.rows);
  for (int row = 0; row < x.rows; row += tile) {
    switch (std::min(tile, x.rows - row)) {
      case 1:
        linear_tile<tile_of(1), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
      case 2:
        linear_tile<tile_of(2), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
      case 3:
        linear_tile<tile_of(3), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
      case 4:
        linear_tile<tile_of(4), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
      case 5:
        linear_tile<tile_of(5), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
      default:
        linear_tile<tile_of(6), kPanels, Weight>(x, row, weight, panel, y, leaves);
        break;
    }
  }
}

template <class Weight>
void linear_range(ConstMatrix x, const PackedWeight& weight, Matrix y, int leaves, int first,
                  int last) {
  int panel = first;
  if (x.rows == 1) {
    for (; panel + tile_panels_one_row <= last; panel += tile_panels_one_row) {
      linear_tile<1, tile_panels_one_row, Weight>(x, 0, weight, panel, y, leaves);
    }
  }
  for (; panel + tile_panels <= last; panel += tile_panels) {
    linear_panels<tile_panels, Weight>(x, weight, panel, y, leaves);
  }
  if constexpr (tile_panels > 2) {
    for (; panel + 2 <= last; panel += 2) linear_panels<2, Weight>(x, weight, panel, y, leaves);
  }
  for (; panel < last; ++panel) linear_panels<1, Weight>(x, weight, panel, y, leaves);
}

void linear_dispatched(const ConstMatrix& x, const PackedWeight& weight, const Matrix& y,
                       int leaves, int first, int last) {
  if (weight.type() == WeightType::bf16) {
    linear_range<Bf16>(x, weight, y, leaves, first, last);
  } else {
    linear_range<float>(x, weight, y, leaves, first, last);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace copse::kernels {
namespace {

HWY_EXPORT(linear_dispatched);

// Below this many multiply-adds waking a thread costs more than it saves.
constexpr std::int64_t inline_work = 1 << 17;
// Panels of one work item are whole register tiles.
constexpr int grain_panels = 8;

int grain(std::int64_t rows, const PackedWeight& weight, int threads) {
  const std::int64_t work = rows * weight.outputs() * weight.inputs();
  if (work < inline_work) return weight.panels();
  const int share = (weight.panels() + threads - 1) / threads;
  if (share >= grain_panels) return grain_panels;
  return std::max(1, (share + 3) / 4 * 4);
}

}  // namespace

void linear(ConstMatrix x, const PackedWeight& weight, Matrix y, ThreadPool& pool, int leaves) {
  CHECK(x.columns == weight.inputs() && y.columns == weight.outputs() && x.rows == y.rows);
  CHECK(leaves >= 1 && leaves <= limits::reduction_leaves && (leaves & (leaves - 1)) == 0);
  CHECK(x.columns % leaves == 0);
  const auto range = HWY_DYNAMIC_DISPATCH(linear_dispatched);
  pool.parallel_for(0, weight.panels(), grain(x.rows, weight, pool.threads()),
                    [&](int first, int last) { range(x, weight, y, leaves, first, last); });
}

void linear_panels(ConstMatrix x, const PackedWeight& weight, int first, int last, Matrix y,
                   ThreadPool& pool) {
  CHECK(x.columns == weight.inputs() && x.rows == y.rows);
  CHECK(0 <= first && first <= last && last <= weight.panels());
  CHECK(y.columns == std::min(last * panel_outputs, weight.outputs()) - first * panel_outputs);
  const auto range = HWY_DYNAMIC_DISPATCH(linear_dispatched);
  // The kernel writes panel p to columns p * 16 of y: let them begin where y does.
  const Matrix shifted = {y.data - first * panel_outputs, y.rows, weight.outputs(), y.stride};
  pool.parallel_for(first, last, grain(x.rows, weight, pool.threads()),
                    [&](int from, int to) { range(x, weight, shifted, 1, from, to); });
}

std::uint64_t linear_bytes_moved(int rows, const PackedWeight& weight) {
  return weight.bytes() + sizeof(float) * static_cast<std::uint64_t>(rows) *
                              static_cast<std::uint64_t>(weight.inputs() + weight.outputs());
}

}  // namespace copse::kernels
#endif
