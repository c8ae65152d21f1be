#include "model/deepseek/target_weights.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

Range all(int count) {
  return {0, count};
}
Range scaled(Range range, int by) {
  return {range.begin * by, range.end * by};
}

// Rows [first, first + count) of a decoded matrix, transposed or not, packed in the type it has.
PackedWeight pack_rows(const HostMatrix& matrix, int first, int count, bool transposed) {
  const std::size_t at = size(first) * size(matrix.columns);
  const auto pack = [&](const auto& values) {
    if (!transposed) {
      return kernels::pack_weight(values.data() + at, count, matrix.columns, matrix.columns);
    }
    auto turned = values;
    turned.resize(size(count) * size(matrix.columns));
    for (int r = 0; r < count; ++r) {
      for (int c = 0; c < matrix.columns; ++c) {
        turned[size(c) * size(count) + size(r)] =
            values[at + size(r) * size(matrix.columns) + size(c)];
      }
    }
    return kernels::pack_weight(turned.data(), matrix.columns, count, count);
  };
  return matrix.is_bf16() ? pack(matrix.bf16) : pack(matrix.f32);
}

void plan_attention(LoadPlan& plan, const ModelConfig& config, const AttentionSpecs& specs,
                    const TargetShard& shard, AttentionWeights& weights) {
  const Range heads = shard.heads.part;
  if (specs.q_a) plan.packed(*specs.q_a, all(specs.q_a->rows), all(config.hidden), weights.q_a);
  if (specs.q_a_norm) plan.vector(*specs.q_a_norm, weights.q_a_norm);
  plan.packed(specs.q, scaled(heads, config.head_dim()), all(specs.q.columns), weights.q);
  plan.packed(specs.kv_a, all(specs.kv_a.rows), all(config.hidden), weights.kv_a);
  plan.vector(specs.kv_a_norm, weights.kv_a_norm);
  const int nope = config.nope_dim;
  const int value = config.value_dim;
  plan.matrix(specs.kv_b, scaled(heads, nope + value), all(config.kv_lora_rank),
              [&weights, nope, value](const HostMatrix& matrix) {
                for (int first = 0; first < matrix.rows; first += nope + value) {
                  weights.absorb_key.push_back(pack_rows(matrix, first, nope, true));
                  weights.absorb_value.push_back(pack_rows(matrix, first + nope, value, false));
                }
              });
  plan.packed(specs.o, all(config.hidden), scaled(heads, value), weights.o);
}

void plan_mlp(LoadPlan& plan, const MlpSpecs& specs, Range inner, MlpWeights& weights) {
  plan.packed(specs.gate, inner, all(specs.gate.columns), weights.gate);
  plan.packed(specs.up, inner, all(specs.up.columns), weights.up);
  plan.packed(specs.down, all(specs.down.rows), inner, weights.down);
}

}  // namespace

void plan_target_weights(LoadPlan& plan, const ModelConfig& config, const TargetSpecs& specs,
                         const TargetShard& shard, TargetWeights& weights) {
  weights.layers.resize(specs.layers.size());
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    const LayerSpecs& from = specs.layers[i];
    LayerWeights& layer = weights.layers[i];
    plan.vector(from.input_norm, layer.input_norm);
    plan_attention(plan, config, from.attention, shard, layer.attention);
    plan.vector(from.post_attention_norm, layer.post_attention_norm);
    if (from.dense) plan_mlp(plan, *from.dense, shard.dense_inner.part, layer.dense);
    if (from.router)
      plan.packed(*from.router, all(config.experts), all(config.hidden), layer.router);
    if (from.router_bias) plan.vector(*from.router_bias, layer.router_bias);
    if (!from.experts.empty()) {
      layer.experts.resize(size(shard.experts.part.size()));
      for (int e = 0; e < shard.experts.part.size(); ++e) {
        plan_mlp(plan, from.experts[size(shard.experts.part.begin + e)], shard.expert_inner.part,
                 layer.experts[size(e)]);
      }
    }
    if (from.shared) plan_mlp(plan, *from.shared, shard.shared_inner.part, layer.shared);
  }
  plan.vector(specs.norm, weights.norm);
}

}  // namespace copse
