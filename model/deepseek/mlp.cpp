// The feed-forward half of a layer: SwiGLU in the first layers, then a mixture of experts
// (arXiv 2412.19437, section 2.1.2). R = rows, E = experts, k = experts per token.
#include <algorithm>

#include "kernels/swiglu/swiglu.h"
#include "model/deepseek/target_parts.h"

namespace copse {

using kernels::ConstMatrix;
using kernels::Matrix;
using kernels::matrix;

void TargetModel::Parts::mlp(int layer, int rows) {
  const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
  const ConstMatrix x = matrix(ws.normed.data(), rows, config.hidden);
  const Matrix part = matrix(ws.part.data(), rows, config.hidden);
  if (!config.is_moe(layer)) {
    const int inner = shard.dense_inner.part.size();
    if (inner == 0) {  // more ranks than columns: nothing to add
      std::fill_n(part.data,
                  static_cast<std::size_t>(rows) * static_cast<std::size_t>(part.columns), 0.0f);
      return;
    }
    const Matrix gate = matrix(ws.gate.data(), rows, inner);
    const Matrix up = matrix(ws.up.data(), rows, inner);
    kernels::linear(x, w.dense.gate, gate, threads);  // [R, inner of this rank]
    kernels::linear(x, w.dense.up, up, threads);      // [R, inner of this rank]
    kernels::swiglu(gate, up, gate, threads);         // [R, inner of this rank]
    kernels::linear(gate, w.dense.down, part, threads, shard.dense_inner.leaves);  // [R, hidden]
    return;
  }
  const Matrix scores = matrix(ws.scores.data(), rows, config.experts);
  const auto chosen =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(config.experts_per_token);
  const std::span<std::int32_t> ids = std::span(ws.expert_ids).first(chosen);
  const std::span<float> chosen_weights = std::span(ws.expert_weights).first(chosen);
  kernels::linear(x, w.router, scores, threads);                                   // [R, E]
  kernels::moe_route(scores, w.router_bias, route, ids, chosen_weights, threads);  // [R, k]
  kernels::MoeLayer experts;
  experts.experts = w.experts;
  experts.first_expert = shard.experts.part.begin;
  experts.whole_experts = shard.whole_experts;
  experts.leaves = shard.expert_leaves;
  experts.shared = shard.shared_inner.part.size() > 0 ? &w.shared : nullptr;
  kernels::moe_experts(x, ids, chosen_weights, config.experts_per_token, experts, part, ws.moe,
                       threads);  // [R, hidden]
}

}  // namespace copse
