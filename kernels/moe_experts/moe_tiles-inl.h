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
  constexpr int count = kRows * kPanels;
  const int inputs = expert.gate.inputs();
  Lanes up[count];
  float gates[count * 16];  // both tiles at once do not fit the registers
  _Pragma("GCC unroll 48") for (int i = 0; i < count; ++i) up[i] = zero();
  tile_range<kRows, kPanels>(x, panels_of<kPanels, Weight>(expert.gate, panel), 0, inputs, up);
  _Pragma("GCC unroll 48") for (int i = 0; i < count; ++i) {
    store(up[i], gates + 16 * i);
    up[i] = zero();
  }
  tile_range<kRows, kPanels>(x, panels_of<kPanels, Weight>(expert.up, panel), 0, inputs, up);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      const int i = r * kPanels + p;
      store(swiglu_lanes(load(gates + 16 * i), up[i]), to[r] + 16 * p);
    }
  }
}

// The same for a single panel, gate and up side by side: a lone row's two chains of additions
// overlap, and each broadcast serves both.
template <int kRows, class Weight>
void gate_up_pair(const float* const* x, const ExpertWeights& expert, int panel, float* const* to) {
  Panels<2, Weight> both;
  both.at[0] = panel_of(expert.gate, panel, Weight());
  both.at[1] = panel_of(expert.up, panel, Weight());
  both.ahead = expert.gate.panel_elements();
  Lanes sums[kRows * 2];
  _Pragma("GCC unroll 16") for (int i = 0; i < kRows * 2; ++i) sums[i] = zero();
  tile_range<kRows, 2>(x, both, 0, expert.gate.inputs(), sums);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    store(swiglu_lanes(sums[2 * r], sums[2 * r + 1]), to[r]);
  }
}

// sums[r][panel p] = weights[r] * (down . x[r] over k in [first, last)) fused onto what is there.
// sums of panel p stand panel_stride floats after those of panel p - 1.
template <int kRows, int kPanels, class Weight>
void down_tile(const float* const* x, const PackedWeight& down, int panel, int first, int last,
               const float* weights, float* const* sums, std::size_t panel_stride) {
  Lanes part[kRows * kPanels];
  _Pragma("GCC unroll 48") for (int i = 0; i < kRows * kPanels; ++i) part[i] = zero();
  tile_range<kRows, kPanels>(x, panels_of<kPanels, Weight>(down, panel), first, last, part);
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    _Pragma("GCC unroll 8") for (int p = 0; p < kPanels; ++p) {
      float* sum = sums[r] + static_cast<std::size_t>(p) * panel_stride;
      store(fma(broadcast(weights[r]), part[r * kPanels + p], load(sum)), sum);
    }
  }
}

// Whichever of the two fits the registers.
template <int kRows, int kPanels, class Weight>
void gate_up_one(const float* const* x, const ExpertWeights& expert, int panel, float* const* to) {
  if constexpr (kPanels == 1 && kRows * parts <= 6) {
    gate_up_pair<kRows, Weight>(x, expert, panel, to);
  } else {
    gate_up_tile<kRows, kPanels, Weight>(x, expert, panel, to);
  }
}

template <int kPanels, class Weight>
void gate_up_rows(int rows, const float* const* x, const ExpertWeights& expert, int panel,
                  float* const* to) {
  switch (rows) {
    case 1:
      gate_up_one<tile_of(1), kPanels, Weight>(x, expert, panel, to);
      break;
    case 2:
      gate_up_one<tile_of(2), kPanels, Weight>(x, expert, panel, to);
      break;
    case 3:
      gate_up_one<tile_of(3), kPanels, Weight>(x, expert, panel, to);
      break;
    case 4:
      gate_up_one<tile_of(4), kPanels, Weight>(x, expert, panel, to);
      break;
    case 5:
      gate_up_one<tile_of(5), kPanels, Weight>(x, expert, panel, to);
      break;
    default:
      gate_up_one<tile_of(6), kPanels, Weight>(x, expert, panel, to);
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
