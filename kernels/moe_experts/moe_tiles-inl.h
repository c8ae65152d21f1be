// The two register tiles of a layer of experts, over rows that are picked by pointer (a token's row
// is not copied to its expert). Included once per target.
#if defined(COPSE_KERNELS_MOE_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPSE_KERNELS_MOE_TILES_INL_H
#undef COPSE_KERNELS_MOE_TILES_INL_H
#else
#define COPSE_KERNELS_MOE_TILES_INL_H
#endif

#include "kernels/common/lanes-inl.h"
#include "kernels/linear/panel_tile-inl.h"
#include "kernels/moe_experts/moe_experts.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {

// to[r][0 .. 16 * kPanels) = silu(gate . x[r]) * (up . x[r]) for panels `panel` ...
template <int kRows, int kPanels, class Weight>
void gate_up_tile(const float* const* x, const ExpertWeights& expert, int panel, float* const* to) {
  const int inputs = expert.gate.inputs();
  const std::size_t stride = expert.gate.panel_elements();
  Lanes gate[kRows * kPanels];
  Lanes up[kRows * kPanels];
  float gates[kRows * kPanels * 16];  // both tiles at once do not fit the registers
  _Pragma("GCC unroll 48") for (int i = 0; i < kRows * kPanels; ++i) gate[i] = up[i] = zero();
  tile_range<kRows, kPanels>(x, PanelView<Weight>::at(expert.gate, panel), stride, 0, inputs, gate);
  _Pragma("GCC unroll 48") for (int i = 0; i < kRows * kPanels; ++i) store(gate[i], gates + 16 * i);
  tile_range<kRows, kPanels>(x, PanelView<Weight>::at(expert.up, panel), stride, 0, inputs, up);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      const int i = r * kPanels + p;
      store(swiglu_lanes(load(gates + 16 * i), up[i]), to[r] + 16 * p);
    }
  }
}

// sums[r][panel p] = weights[r] * (down . x[r] over k in [first, last)) fused onto what is there.
// sums of panel p stand panel_stride floats after those of panel p - 1.
template <int kRows, int kPanels, class Weight>
void down_tile(const float* const* x, const PackedWeight& down, int panel, int first, int last,
               const float* weights, float* const* sums, std::size_t panel_stride) {
  const std::size_t stride = down.panel_elements();
  Lanes part[kRows * kPanels];
  _Pragma("GCC unroll 48") for (int i = 0; i < kRows * kPanels; ++i) part[i] = zero();
  tile_range<kRows, kPanels>(x, PanelView<Weight>::at(down, panel), stride, first, last, part);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      float* sum = sums[r] + static_cast<std::size_t>(p) * panel_stride;
      store(fma(broadcast(weights[r]), part[r * kPanels + p], load(sum)), sum);
    }
  }
}

template <int kPanels, class Weight>
void gate_up_rows(int rows, const float* const* x, const ExpertWeights& expert, int panel,
                  float* const* to) {
  switch (rows) {
    case 1:
      gate_up_tile<tile_of(1), kPanels, Weight>(x, expert, panel, to);
      break;
    case 2:
      gate_up_tile<tile_of(2), kPanels, Weight>(x, expert, panel, to);
      break;
    case 3:
      gate_up_tile<tile_of(3), kPanels, Weight>(x, expert, panel, to);
      break;
    case 4:
      gate_up_tile<tile_of(4), kPanels, Weight>(x, expert, panel, to);
      break;
    case 5:
      gate_up_tile<tile_of(5), kPanels, Weight>(x, expert, panel, to);
      break;
    default:
      gate_up_tile<tile_of(6), kPanels, Weight>(x, expert, panel, to);
      break;
  }
}

template <int kPanels, class Weight>
void down_rows(int rows, const float* const* x, const PackedWeight& down, int panel, int first,
               int last, const float* weights, float* const* sums, std::size_t stride) {
  switch (rows) {
    case 1:
      down_tile<tile_of(1), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
      break;
    case 2:
      down_tile<tile_of(2), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
      break;
    case 3:
      down_tile<tile_of(3), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
      break;
    case 4:
      down_tile<tile_of(4), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
      break;
    case 5:
      down_tile<tile_of(5), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
      break;
    default:
      down_tile<tile_of(6), kPanels, Weight>(x, down, panel, first, last, weights, sums, stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#endif  // COPSE_KERNELS_MOE_TILES_INL_H
