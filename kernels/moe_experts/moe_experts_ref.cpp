#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/common/exp.h"
#include "kernels/common/tree_sum.h"
#include "kernels/moe_experts/moe_experts.h"

namespace copse::kernels::ref {
namespace {

float dot(const float* x, const PackedWeight& weight, int output, int first, int last) {
  float sum = 0;
  for (int k = first; k < last; ++k) sum = std::fma(x[k], weight.at(output, k), sum);
  return sum;
}

std::vector<float> activation(const float* x, const ExpertWeights& expert) {
  std::vector<float> result;
  for (int i = 0; i < expert.gate.outputs(); ++i) {
    const float gate = dot(x, expert.gate, i, 0, expert.gate.inputs());
    const float up = dot(x, expert.up, i, 0, expert.up.inputs());
    result.push_back(gate / (1.0f + exp_fixed(0.0f - gate)) * up);
  }
  return result;
}

struct Chosen {
  const ExpertWeights* expert;
  int index;  // of this rank
  float weight;
  std::vector<float> activation;
};

}  // namespace

void moe_experts(ConstMatrix x, std::span<const std::int32_t> ids, std::span<const float> weights,
                 int experts_per_token, const MoeLayer& layer, Matrix y) {
  const int count = static_cast<int>(layer.experts.size());
  CHECK(ids.size() == static_cast<std::size_t>(x.rows * experts_per_token));
  for (int r = 0; r < x.rows; ++r) {
    std::vector<Chosen> chosen;
    for (int i = 0; i < experts_per_token; ++i) {
      const auto at = static_cast<std::size_t>(r * experts_per_token + i);
      const int index = ids[at] - layer.first_expert;
      if (index < 0 || index >= count) continue;
      const ExpertWeights& expert = layer.experts[static_cast<std::size_t>(index)];
      chosen.push_back({&expert, index, weights[at], activation(x.row(r), expert)});
    }
    std::vector<float> shared;
    if (layer.shared != nullptr) shared = activation(x.row(r), *layer.shared);
    for (int n = 0; n < y.columns; ++n) {
      float sums[limits::reduction_leaves] = {};
      for (int leaf = 0; leaf < layer.leaves; ++leaf) {
        for (const Chosen& c : chosen) {
          const int inner = c.expert->down.inputs();
          float part = 0;
          if (!layer.whole_experts) {
            const int size = inner / layer.leaves;
            part = dot(c.activation.data(), c.expert->down, n, leaf * size, (leaf + 1) * size);
          } else if (c.index / (count / layer.leaves) == leaf) {
            part = dot(c.activation.data(), c.expert->down, n, 0, inner);
          } else {
            continue;
          }
          sums[leaf] = std::fma(c.weight, part, sums[leaf]);
        }
        if (layer.shared != nullptr) {
          const int size = layer.shared->down.inputs() / layer.leaves;
          sums[leaf] += dot(shared.data(), layer.shared->down, n, leaf * size, (leaf + 1) * size);
        }
      }
      y.row(r)[n] = tree_sum_leaves(sums, layer.leaves);
    }
  }
}

}  // namespace copse::kernels::ref
