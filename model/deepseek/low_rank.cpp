// The projections into the query's and the latent's low rank, q_a_proj and kv_a_proj: every rank
// needs all of their outputs and has all of their weights.
#include <algorithm>
#include <array>

#include "model/deepseek/target_parts.h"

namespace copse {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;
using kernels::matrix;
using kernels::PackedWeight;
using kernels::panel_outputs;

// From this many rows on the ranks share out the outputs and gather them: each row costs a rank an
// eighth of the work then, and the gather is one synchronisation. A lone decode row
// should not wait for one more collective in every layer.
constexpr int kShareRows = 4;

// A run of one weight's panels inside a rank's part of the panels of q_a and kv_a in a row.
struct Run {
  const PackedWeight* weight;
  Matrix whole;    // [R][weight.outputs()]: where the outputs belong
  Range panels;    // of the weight
  int column = 0;  // of the rank's block, where the run begins
  int outputs() const {
    return std::min(panels.end * panel_outputs, weight->outputs()) - panels.begin * panel_outputs;
  }
};

std::array<Run, 2> runs_of(const Range& part, const PackedWeight& q_a, Matrix q_lora,
                           const PackedWeight& kv_a, Matrix latent) {
  const int border = std::clamp(q_a.panels(), part.begin, part.end);
  return {
      Run{&q_a, q_lora, {std::min(part.begin, q_a.panels()), std::min(border, q_a.panels())}, 0},
      Run{&kv_a,
          latent,
          {border - q_a.panels(), part.end - q_a.panels()},
          (border - part.begin) * panel_outputs}};
}

}  // namespace

int low_rank_panels(const ModelConfig& config) {
  const auto panels = [](int outputs) { return (outputs + panel_outputs - 1) / panel_outputs; };
  return panels(config.q_lora_rank) + panels(config.latent_width());
}

// ws.q_lora [R][q_lora_rank] and ws.latent [R][latent + rope] of ws.normed, before their norms.
Status TargetModel::Parts::low_rank(const AttentionWeights& w, int rows) {
  const ConstMatrix x = matrix(ws.normed.data(), rows, config.hidden);
  const Matrix q_lora = matrix(ws.q_lora.data(), rows, config.q_lora_rank);
  const Matrix latent = matrix(ws.latent.data(), rows, config.latent_width());
  if (group.world_size() == 1 || rows < kShareRows) {
    if (config.q_lora_rank > 0) kernels::linear(x, w.q_a, q_lora, threads);
    kernels::linear(x, w.kv_a, latent, threads);
    return {};
  }
  // One block per rank, equally long for the gather: [R][width].
  const int count = low_rank_panels(config);
  const int world = group.world_size();
  const int width = (count + world - 1) / world * panel_outputs;
  const std::size_t floats = static_cast<std::size_t>(width) * static_cast<std::size_t>(rows);
  const auto in_block = [&](float* block, const Run& run) {
    return Matrix{block + run.column, rows, run.outputs(), width};
  };
  const auto runs = [&](int rank) {
    return runs_of(even_part(count, {rank, world}), w.q_a, q_lora, w.kv_a, latent);
  };
  for (const Run& run : runs(group.rank())) {
    if (run.panels.size() <= 0) continue;
    kernels::linear_panels(x, *run.weight, run.panels.begin, run.panels.end,
                           in_block(ws.shared_mine.data(), run), threads);
  }
  const auto all = std::span(ws.shared_all).first(floats * static_cast<std::size_t>(world));
  COPSE_RETURN_IF_ERROR(group.all_gather(std::as_bytes(std::span(ws.shared_mine).first(floats)),
                                         std::as_writable_bytes(all)));
  for (int rank = 0; rank < world; ++rank) {
    float* block = all.data() + static_cast<std::size_t>(rank) * floats;
    for (const Run& run : runs(rank)) {
      if (run.panels.size() <= 0) continue;
      const Matrix from = in_block(block, run);
      const int column = run.panels.begin * panel_outputs;
      for (int r = 0; r < rows; ++r) {
        std::copy_n(from.row(r), from.columns, run.whole.row(r) + column);
      }
    }
  }
  return {};
}

}  // namespace copse
