// The inner loop of every product with packed weights: `rows` rows of x times `panels` panels of 16
// outputs over a range of k, all sums in registers. Included once per target.
#if defined(COPSE_KERNELS_PANEL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPSE_KERNELS_PANEL_TILE_INL_H
#undef COPSE_KERNELS_PANEL_TILE_INL_H
#else
#define COPSE_KERNELS_PANEL_TILE_INL_H
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/common/lanes-inl.h"
#include "kernels/linear/linear.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {

// Rows of one tile: 6 x 4 sums, 4 weights and a broadcast fill the 32 registers of AVX-512; AVX2
// keeps 6 x 1 sums of two registers each; plain code takes one row, to be small.
constexpr int tile_rows = parts <= 2 ? 6 : 1;
constexpr int tile_panels = parts == 1 ? 4 : 1;
// With one row the loop waits for weights, not for arithmetic: more panels are more streams.
constexpr int tile_panels_one_row = parts <= 2 ? 2 * tile_panels : 1;
// The tile for `rows` rows, which are at most tile_rows: larger ones are never chosen.
constexpr int tile_of(int rows) {
  return rows < tile_rows ? rows : tile_rows;
}

// The 16 weights of one panel at k.
HWY_INLINE Lanes panel_weights(const float* panel, int k) {
  return load(panel + static_cast<std::size_t>(k) * panel_outputs);
}
HWY_INLINE Lanes panel_weights(const Bf16* panel, int k) {
  const Bf16* pairs = panel + static_cast<std::size_t>(k / 2) * 2 * panel_outputs;
  return k % 2 == 0 ? load_low_halves(pairs) : load_high_halves(pairs);
}

// sums[r][p] += x[r][k] * weights[p] at one k.
template <int kRows, int kPanels>
HWY_INLINE void tile_step(const float* const (&rows)[kRows], int k, const Lanes (&weights)[kPanels],
                          Lanes (&sums)[kRows * kPanels]) {
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    const Lanes value = broadcast(rows[r][k]);
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      sums[r * kPanels + p] = fma(value, weights[p], sums[r * kPanels + p]);
    }
  }
}

template <int kPanels, class Weight>
struct Panels {
  const Weight* at[kPanels];
  std::size_t ahead = 0;  // elements from a panel to the one worked on next
};

// The weights of every panel at k, then one step.
template <int kRows, int kPanels, class Weight>
HWY_INLINE void tile_at(const float* const (&rows)[kRows], const Panels<kPanels, Weight>& panels,
                        int k, Lanes (&sums)[kRows * kPanels]) {
  Lanes weights[kPanels];
  _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
    weights[p] = panel_weights(panels.at[p], k);
  }
  tile_step<kRows, kPanels>(rows, k, weights, sums);
}

// sums[r][p] += over k in [first, last) of x[r][k] * weight panel p at k, in the order of k. Two k
// a round, as they share a word of bf16 weights.
template <int kRows, int kPanels, class Weight>
HWY_INLINE void tile_range(const float* const* x, const Panels<kPanels, Weight>& panels, int first,
                           int last, Lanes (&sums)[kRows * kPanels]) {
  const float* rows[kRows];
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) rows[r] = x[r];
  const Panels<kPanels, Weight> local = panels;
  int k = first;
  if (k < last && k % 2 != 0) tile_at<kRows, kPanels>(rows, local, k++, sums);
  // The next panels are fetched while these are worked on: with several rows arithmetic and memory
  // would otherwise take turns.
  const std::size_t ahead = local.ahead;
  for (; k + 2 <= last; k += 2) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      const auto* next = local.at[p] + static_cast<std::size_t>(k) * panel_outputs + ahead;
      __builtin_prefetch(next, 0, 2);
      if constexpr (sizeof(Weight) == 4) __builtin_prefetch(next + panel_outputs, 0, 2);
    }
    tile_at<kRows, kPanels>(rows, local, k, sums);
    tile_at<kRows, kPanels>(rows, local, k + 1, sums);
  }
  if (k < last) tile_at<kRows, kPanels>(rows, local, k, sums);
}

// The dot products of kRows rows with kPanels panels over k in [0, inputs), summed leaf by leaf and
// joined as the binary tree. Result r, p in sums[r * kPanels + p].
template <int kRows, int kPanels, class Weight>
HWY_INLINE void tile_leaves(const float* const* x, const Panels<kPanels, Weight>& panels,
                            int inputs, int leaves, Lanes (&sums)[kRows * kPanels]) {
  constexpr int count = kRows * kPanels;
  float pending[3][count * 16];  // finished left subtrees, one per level
  const int leaf_inputs = inputs / leaves;
  for (int leaf = 0;; ++leaf) {
    _Pragma("GCC unroll 48") for (int i = 0; i < count; ++i) sums[i] = zero();
    tile_range<kRows, kPanels>(x, panels, leaf * leaf_inputs, (leaf + 1) * leaf_inputs, sums);
    int level = 0;
    for (int done = leaf; done & 1; done >>= 1, ++level) {
      _Pragma("GCC unroll 48") for (int i = 0; i < count; ++i) {
        sums[i] = add(load(pending[level] + i * 16), sums[i]);
      }
    }
    if (leaf + 1 == leaves) return;
    _Pragma("GCC unroll 48") for (int i = 0; i < count; ++i) {
      store(sums[i], pending[level] + i * 16);
    }
  }
}

inline const Bf16* panel_of(const PackedWeight& weight, int panel, Bf16) {
  return weight.bf16_panel(panel);
}
inline const float* panel_of(const PackedWeight& weight, int panel, float) {
  return weight.float_panel(panel);
}
template <int kPanels, class Weight>
HWY_INLINE Panels<kPanels, Weight> panels_of(const PackedWeight& weight, int first) {
  Panels<kPanels, Weight> result;
  for (int p = 0; p < kPanels; ++p) result.at[p] = panel_of(weight, first + p, Weight());
  result.ahead = kPanels * weight.panel_elements();
  return result;
}

// Rows per tile so that `rows` split evenly: 8 rows are 4 + 4, not 6 + 2.
HWY_INLINE int even_tile(int rows) {
  const int tiles = (rows + tile_rows - 1) / tile_rows;
  return (rows + tiles - 1) / tiles;
}

}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#endif  // COPSE_KERNELS_PANEL_TILE_INL_H
