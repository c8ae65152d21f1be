#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe_experts/moe_experts_cpu.cpp"
#include <hwy/foreach_target.h>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_experts/moe_tiles-inl.h"

#ifndef COPSE_KERNELS_MOE_CALL
#define COPSE_KERNELS_MOE_CALL
namespace copse::kernels {
namespace {

// One call's inputs and where its rows stand.
struct MoeCall {
  ConstMatrix x;
  const MoeLayer& layer;
  Matrix y;
  MoeWorkspace& workspace;
  int inner_stride;  // floats of one activation row
  int shared_stride;
};

int padded(int columns) {
  return (columns + panel_outputs - 1) / panel_outputs * panel_outputs;
}

// The rows that use one expert: pairs first .. last - 1, or every row (the shared expert).
struct ExpertRows {
  const ExpertWeights* expert;
  int first;
  int last;
  bool shared;
};

ExpertRows rows_of(const MoeCall& call, int expert) {
  if (expert < 0) return {call.layer.shared, 0, call.x.rows, true};
  const auto at = static_cast<std::size_t>(expert);
  return {&call.layer.experts[at], call.workspace.first_pair[at], call.workspace.first_pair[at + 1],
          false};
}

int row_of(const MoeCall& call, const ExpertRows& rows, int pair) {
  return rows.shared ? pair : call.workspace.pair_row[static_cast<std::size_t>(pair)];
}

float* activation_of(const MoeCall& call, const ExpertRows& rows, int pair) {
  MoeWorkspace& w = call.workspace;
  return rows.shared ? w.shared_activation.data() + std::ptrdiff_t{pair} * call.shared_stride
                     : w.activation.data() + std::ptrdiff_t{pair} * call.inner_stride;
}

}  // namespace
}  // namespace copse::kernels
#endif  // COPSE_KERNELS_MOE_CALL

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// Phase 1: activations of one expert's rows for inner panels [first, last).
void gate_up_range(const MoeCall& call, int expert, int first, int last) {
  const ExpertRows rows = rows_of(call, expert);
  const int tile = even_tile(std::max(1, rows.last - rows.first));
  for (int panel = first; panel < last;) {
    const bool wide = panel + tile_panels <= last;
    for (int pair = rows.first; pair < rows.last; pair += tile) {
      const int count = std::min(tile, rows.last - pair);
      const float* x[tile_rows];
      float* to[tile_rows];
      for (int i = 0; i < count; ++i) {
        x[i] = call.x.row(row_of(call, rows, pair + i));
        to[i] = activation_of(call, rows, pair + i) + panel * panel_outputs;
      }
      if (rows.expert->gate.type() == WeightType::bf16) {
        wide ? gate_up_rows<tile_panels, Bf16>(count, x, *rows.expert, panel, to)
             : gate_up_rows<1, Bf16>(count, x, *rows.expert, panel, to);
      } else {
        wide ? gate_up_rows<tile_panels, float>(count, x, *rows.expert, panel, to)
             : gate_up_rows<1, float>(count, x, *rows.expert, panel, to);
      }
    }
    panel += wide ? tile_panels : 1;
  }
}

// Adds k in [first, last) of one expert to the leaf's sums, [panel][rows][16].
template <int kPanels>
void add_expert(const MoeCall& call, int expert, int panel, int first, int last, float* sums) {
  const ExpertRows rows = rows_of(call, expert);
  if (rows.first == rows.last) return;
  const int tile = even_tile(rows.last - rows.first);
  const auto panel_stride = static_cast<std::size_t>(call.x.rows) * 16;
  for (int pair = rows.first; pair < rows.last; pair += tile) {
    const int count = std::min(tile, rows.last - pair);
    const float* x[tile_rows];
    float* to[tile_rows];
    float weights[tile_rows];
    for (int i = 0; i < count; ++i) {
      x[i] = activation_of(call, rows, pair + i);
      to[i] = sums + row_of(call, rows, pair + i) * 16;
      weights[i] =
          rows.shared ? 1.0f : call.workspace.pair_weight[static_cast<std::size_t>(pair + i)];
    }
    if (rows.expert->down.type() == WeightType::bf16) {
      down_rows<kPanels, Bf16>(count, x, rows.expert->down, panel, first, last, weights, to,
                               panel_stride);
    } else {
      down_rows<kPanels, float>(count, x, rows.expert->down, panel, first, last, weights, to,
                                panel_stride);
    }
  }
}

// One leaf of the split sum for kPanels output panels and all rows.
template <int kPanels>
void sum_leaf(const MoeCall& call, int panel, int leaf, float* sums) {
  const MoeLayer& layer = call.layer;
  const int experts = static_cast<int>(layer.experts.size());
  std::fill_n(sums, std::size_t{kPanels} * static_cast<std::size_t>(call.x.rows) * 16, 0.0f);
  if (layer.whole_experts) {
    const int size = experts / layer.leaves;
    for (int e = leaf * size; e < (leaf + 1) * size; ++e) {
      const int inner = layer.experts[static_cast<std::size_t>(e)].down.inputs();
      add_expert<kPanels>(call, e, panel, 0, inner, sums);
    }
  } else {
    for (int e = 0; e < experts; ++e) {
      const int size = layer.experts[static_cast<std::size_t>(e)].down.inputs() / layer.leaves;
      add_expert<kPanels>(call, e, panel, leaf * size, (leaf + 1) * size, sums);
    }
  }
  if (layer.shared != nullptr) {
    const int size = layer.shared->down.inputs() / layer.leaves;
    add_expert<kPanels>(call, -1, panel, leaf * size, (leaf + 1) * size, sums);
  }
}

// Phase 2: y for output panels [panel, panel + kPanels). Level 3 of the workspace holds the running
// leaf; levels 0 to 2 hold finished left subtrees.
template <int kPanels>
void down_panels(const MoeCall& call, int panel) {
  const std::size_t level_floats =
      std::size_t{kPanels} * static_cast<std::size_t>(call.x.rows) * 16;
  float* levels =
      call.workspace.leaf_sums.data() +
      static_cast<std::size_t>(panel) * 4 * 16 * static_cast<std::size_t>(call.workspace.rows_max);
  float* current = levels + 3 * level_floats;
  for (int leaf = 0; leaf < call.layer.leaves; ++leaf) {
    sum_leaf<kPanels>(call, panel, leaf, current);
    int level = 0;
    for (int done = leaf; done & 1; done >>= 1, ++level) {
      const float* left = levels + static_cast<std::size_t>(level) * level_floats;
      for (std::size_t i = 0; i < level_floats; i += 16) {
        store(add(load(left + i), load(current + i)), current + i);
      }
    }
    if (leaf + 1 < call.layer.leaves) {
      std::copy_n(current, level_floats, levels + static_cast<std::size_t>(level) * level_floats);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    const int column = (panel + p) * panel_outputs;
    const int count = std::min(panel_outputs, call.y.columns - column);
    for (int r = 0; r < call.x.rows; ++r) {
      std::copy_n(current + (std::ptrdiff_t{p} * call.x.rows + r) * 16, count,
                  call.y.row(r) + column);
    }
  }
}

void down_range(const MoeCall& call, int first, int last) {
  int panel = first;
  for (; panel + tile_panels <= last; panel += tile_panels) down_panels<tile_panels>(call, panel);
  for (; panel < last; ++panel) down_panels<1>(call, panel);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace copse::kernels {
namespace {

HWY_EXPORT(gate_up_range);
HWY_EXPORT(down_range);

// Panels of one work item: a register tile of the widest target.
constexpr int grain_panels = 4;
// Below this many multiply-adds waking a thread costs more than it saves.
constexpr std::int64_t inline_work = 1 << 17;

// Fills first_pair, pair_row and pair_weight: a counting sort, stable in the rows.
void sort_pairs(std::span<const std::int32_t> ids, std::span<const float> weights, int per_token,
                const MoeLayer& layer, MoeWorkspace& workspace) {
  const auto experts = static_cast<std::int32_t>(layer.experts.size());
  std::int32_t* first = workspace.first_pair.data();
  std::fill_n(first, experts + 2, 0);
  const auto local = [&](std::size_t i) { return ids[i] - layer.first_expert; };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (local(i) >= 0 && local(i) < experts) ++first[local(i) + 2];
  }
  for (int e = 0; e < experts; ++e) first[e + 1] += first[e];
  // first[e + 1] is where expert e begins now, and where it ends once its pairs are placed.
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (local(i) < 0 || local(i) >= experts) continue;
    const auto at = static_cast<std::size_t>(first[local(i) + 1]++);
    workspace.pair_row[at] = static_cast<std::int32_t>(i) / per_token;
    workspace.pair_weight[at] = weights[i];
  }
}

void check_call(ConstMatrix x, const MoeLayer& layer, Matrix y, const MoeWorkspace& workspace) {
  CHECK(x.rows == y.rows && x.columns == y.columns && x.rows <= workspace.rows_max);
  CHECK(layer.leaves >= 1 && layer.leaves <= limits::reduction_leaves);
  CHECK((layer.leaves & (layer.leaves - 1)) == 0);
  CHECK(!layer.whole_experts || layer.experts.size() % static_cast<unsigned>(layer.leaves) == 0);
  CHECK(layer.experts.size() + 2 <= workspace.first_pair.size());
  const auto check_expert = [&](const ExpertWeights& expert, bool split) {
    const int inner = expert.down.inputs();
    CHECK(expert.gate.outputs() == inner && expert.up.outputs() == inner);
    CHECK(expert.gate.inputs() == x.columns && expert.up.inputs() == x.columns);
    CHECK(expert.gate.type() == expert.up.type() && expert.down.outputs() == y.columns);
    CHECK(!split || inner % layer.leaves == 0);
  };
  for (const ExpertWeights& expert : layer.experts) {
    check_expert(expert, !layer.whole_experts);
    CHECK(expert.down.inputs() == layer.experts[0].down.inputs());
  }
  if (layer.shared != nullptr) check_expert(*layer.shared, true);
}

}  // namespace

MoeWorkspace::MoeWorkspace(int rows, int experts_per_token, int experts, int inner,
                           int shared_inner, int hidden)
    : rows_max(rows) {
  const auto pairs = static_cast<std::size_t>(rows) * static_cast<std::size_t>(experts_per_token);
  first_pair.resize(static_cast<std::size_t>(experts) + 2);
  pair_row.resize(pairs);
  pair_weight.resize(pairs);
  activation.resize(pairs * static_cast<std::size_t>(padded(inner)));
  shared_activation.resize(static_cast<std::size_t>(rows) *
                           static_cast<std::size_t>(padded(shared_inner)));
  leaf_sums.resize(4 * static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded(hidden)));
}

std::size_t MoeWorkspace::bytes() const {
  return sizeof(float) * (first_pair.size() + pair_row.size() + pair_weight.size() +
                          activation.size() + shared_activation.size() + leaf_sums.size());
}

void moe_experts(ConstMatrix x, std::span<const std::int32_t> ids, std::span<const float> weights,
                 int experts_per_token, const MoeLayer& layer, Matrix y, MoeWorkspace& workspace,
                 ThreadPool& pool) {
  check_call(x, layer, y, workspace);
  CHECK(ids.size() == static_cast<std::size_t>(x.rows * experts_per_token));
  CHECK(ids.size() == weights.size() && ids.size() <= workspace.pair_row.size());
  if (x.rows == 0) return;
  sort_pairs(ids, weights, experts_per_token, layer, workspace);

  const int experts = static_cast<int>(layer.experts.size());
  const int inner = experts > 0 ? layer.experts[0].gate.outputs() : 0;
  const int shared_inner = layer.shared != nullptr ? layer.shared->gate.outputs() : 0;
  const MoeCall call = {x, layer, y, workspace, padded(inner), padded(shared_inner)};
  const std::int64_t pairs = workspace.first_pair[static_cast<std::size_t>(experts)];
  const bool small =
      (pairs * inner + std::int64_t{x.rows} * shared_inner) * x.columns < inline_work;

  // Work items: the shared expert's inner panels, then each expert's, grain_panels at a time.
  const auto groups = [](int columns) {
    return (padded(columns) / 16 + grain_panels - 1) / grain_panels;
  };
  const int shared_groups = groups(shared_inner);
  const int inner_groups = groups(inner);
  const auto gate_up = HWY_DYNAMIC_DISPATCH(gate_up_range);
  const int items = shared_groups + experts * inner_groups;
  pool.parallel_for(0, items, small ? items : 1, [&](int first, int last) {
    for (int item = first; item < last; ++item) {
      const bool shared = item < shared_groups;
      const int expert = shared ? -1 : (item - shared_groups) / inner_groups;
      const int group = shared ? item : (item - shared_groups) % inner_groups;
      const int panels = padded(shared ? shared_inner : inner) / 16;
      gate_up(call, expert, group * grain_panels, std::min((group + 1) * grain_panels, panels));
    }
  });
  const auto down = HWY_DYNAMIC_DISPATCH(down_range);
  const int panels = padded(y.columns) / 16;
  pool.parallel_for(0, panels, small ? panels : grain_panels,
                    [&](int first, int last) { down(call, first, last); });
}

std::uint64_t moe_experts_bytes_moved(ConstMatrix x, std::span<const std::int32_t> ids,
                                      const MoeLayer& layer) {
  const auto weights = [](const ExpertWeights& expert) {
    return expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
  };
  std::uint64_t bytes = 2 * sizeof(float) * static_cast<std::uint64_t>(x.rows) *
                        static_cast<std::uint64_t>(x.columns);
  for (std::size_t e = 0; e < layer.experts.size(); ++e) {
    const auto id = static_cast<std::int32_t>(e) + layer.first_expert;
    const auto pairs = static_cast<std::uint64_t>(std::count(ids.begin(), ids.end(), id));
    if (pairs == 0) continue;
    const ExpertWeights& expert = layer.experts[e];
    bytes += weights(expert) +
             2 * sizeof(float) * pairs * static_cast<std::uint64_t>(expert.gate.outputs());
  }
  if (layer.shared != nullptr) bytes += weights(*layer.shared);
  return bytes;
}

}  // namespace copse::kernels
#endif
