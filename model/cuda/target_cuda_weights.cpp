// What a CudaTarget holds: weights in the shapes of its products, and the workspace of the largest
// pass.
#include <algorithm>

#include "kernels/common/cuda/device_memory.h"
#include "model/cuda/target_cuda.h"
#include "model/deepseek/target_route.h"

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

// kv_b_proj's key rows of each head, transposed: a query in latent space. [h * latent][nope].
template <class T>
void absorbed_keys(const HostMatrix& kv_b, int nope, int value, std::span<T> out) {
  const std::vector<T> rows = converted<T>(kv_b);
  const int latent = kv_b.columns;
  const int heads = kv_b.rows / (nope + value);
  for (int h = 0; h < heads; ++h) {
    const T* from = rows.data() + size(h * (nope + value)) * size(latent);
    T* to = out.data() + size(h) * size(latent) * size(nope);
    for (int n = 0; n < nope; ++n) {
      for (int l = 0; l < latent; ++l) to[size(l) * size(nope) + size(n)] = from[n * latent + l];
    }
  }
}

// Its value rows as they are. [h * value][latent].
template <class T>
void absorbed_values(const HostMatrix& kv_b, int nope, int value, std::span<T> out) {
  const std::vector<T> rows = converted<T>(kv_b);
  const std::size_t latent = size(kv_b.columns);
  const int heads = kv_b.rows / (nope + value);
  for (int h = 0; h < heads; ++h) {
    std::copy_n(rows.data() + size(h * (nope + value) + nope) * latent, size(value) * latent,
                out.data() + size(h * value) * latent);
  }
}

}  // namespace

template <class T>
CudaTarget<T>::CudaTarget(const ModelConfig& config, const CudaTargetOptions& options,
                          const Shard& shard, DeviceCollective& group,
                          kernels::cuda::DenseGemm*& gemm)
    : config_(config),
      options_(options),
      shard_(shard_target(config, shard)),
      group_(group),
      gemm_(gemm),
      rope_(kernels::make_rope_table(rope_spec(config))) {}

template <class T>
int CudaTarget<T>::feature_width() const {
  return static_cast<int>(options_.feature_layers.size()) * config_.hidden;
}

template <class T>
T* CudaTarget<T>::feature_slice(int layer) const {
  const auto& wanted = options_.feature_layers;
  const auto at = std::find(wanted.begin(), wanted.end(), layer);
  return at == wanted.end() ? nullptr : ws_.features + (at - wanted.begin()) * config_.hidden;
}

template <class T>
void CudaTarget<T>::place(const TargetSpecs& specs, DeviceWeightPlan<T>& weights,
                          kernels::cuda::DeviceArena& arena) {
  const VocabularyShard& own = shard_.vocabulary;
  weights.embedding(specs.embedding, shard_.embedding_rows, all(config_.hidden), embedding_);
  weights.matrix(specs.head, {own.begin, own.begin + own.rows}, all(config_.hidden), head_);
  weights.vector(specs.norm, norm_);
  layers_.resize(specs.layers.size());
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    const LayerSpecs& from = specs.layers[i];
    CudaLayerWeights<T>& layer = layers_[i];
    weights.vector(from.input_norm, layer.input_norm);
    place_attention(from.attention, weights, layer);
    weights.vector(from.post_attention_norm, layer.post_attention_norm);
    if (from.dense) place_mlp(*from.dense, shard_.dense_inner.part, weights, layer);
    if (from.router) {
      weights.matrix(*from.router, all(config_.experts), all(config_.hidden), layer.router);
    }
    if (from.router_bias) weights.vector(*from.router_bias, layer.router_bias);
    if (!from.experts.empty()) layer.experts.place(config_, shard_, from.experts, weights);
    if (from.shared) place_mlp(*from.shared, shard_.shared_inner.part, weights, layer);
  }
  place_workspace(arena);
}

template <class T>
void CudaTarget<T>::place_attention(const AttentionSpecs& specs, DeviceWeightPlan<T>& weights,
                                    CudaLayerWeights<T>& layer) {
  const Range heads = shard_.heads.part;
  const Range hidden = all(config_.hidden);
  if (specs.q_a) {
    weights.stack(
        specs.q_a->name,
        {{&*specs.q_a, all(specs.q_a->rows), hidden}, {&specs.kv_a, all(specs.kv_a.rows), hidden}},
        layer.low_rank);
    weights.vector(*specs.q_a_norm, layer.q_a_norm);
  } else {
    weights.matrix(specs.kv_a, all(specs.kv_a.rows), hidden, layer.low_rank);
  }
  weights.vector(specs.kv_a_norm, layer.kv_a_norm);
  weights.matrix(specs.q, scaled(heads, config_.head_dim()), all(specs.q.columns), layer.q);
  const int nope = config_.nope_dim;
  const int value = config_.value_dim;
  const int latent = config_.kv_lora_rank;
  const LinearSlice kv_b = {&specs.kv_b, scaled(heads, nope + value), all(latent)};
  weights.reshaped(
      specs.kv_b.name + " (keys)", kv_b, heads.size() * latent, nope,
      [nope, value](const HostMatrix& m, std::span<T> out) {
        absorbed_keys<T>(m, nope, value, out);
      },
      layer.absorb_key);
  weights.reshaped(
      specs.kv_b.name + " (values)", kv_b, heads.size() * value, latent,
      [nope, value](const HostMatrix& m, std::span<T> out) {
        absorbed_values<T>(m, nope, value, out);
      },
      layer.absorb_value);
  weights.matrix(specs.o, hidden, scaled(heads, value), layer.o);
}

template <class T>
void CudaTarget<T>::place_mlp(const MlpSpecs& specs, Range inner, DeviceWeightPlan<T>& weights,
                              CudaLayerWeights<T>& layer) {
  const Range hidden = all(config_.hidden);
  weights.stack(specs.gate.name, {{&specs.gate, inner, hidden}, {&specs.up, inner, hidden}},
                layer.gate_up);
  weights.matrix(specs.down, hidden, inner, layer.down);
}

template <class T>
int CudaTarget<T>::shared_width() const {
  return std::max(
      config_.dense_layers > 0 || config_.experts == 0 ? shard_.dense_inner.part.size() : 0,
      shard_.shared_inner.part.size());
}

template <class T>
void CudaTarget<T>::place_workspace(kernels::cuda::DeviceArena& arena) {
  const std::size_t rows = size(options_.rows_max);
  const std::size_t heads = size(shard_.heads.part.size());
  const std::size_t hidden = size(config_.hidden);
  const std::size_t chosen = rows * size(config_.experts_per_token);
  arena.place("angles of rope", size(config_.rope_dim / 2), inv_freq_);
  arena.place("residual", rows * hidden, ws_.residual);
  arena.place("normed", rows * hidden, ws_.normed);
  arena.place("part", rows * hidden, ws_.part);
  arena.place("angles", rows * size(config_.rope_dim), ws_.angles);
  arena.place("low rank", rows * size(config_.q_lora_rank + config_.latent_width()), ws_.low_rank);
  arena.place("queries", rows * heads * size(config_.head_dim()), ws_.q);
  arena.place("absorbed queries", rows * heads * size(config_.latent_width()), ws_.q_absorbed);
  arena.place("attended", rows * heads * size(config_.kv_lora_rank), ws_.attended);
  arena.place("attended values", rows * heads * size(config_.value_dim), ws_.values);
  arena.place("activation", rows * size(shared_width()), ws_.activation);
  arena.place("router scores", rows * size(config_.experts), ws_.scores);
  arena.place("expert ids", chosen, ws_.expert_ids);
  arena.place("expert weights", chosen, ws_.expert_weights);
  arena.place("features", rows * size(feature_width()), ws_.features);
  arena.place("head rows", size(options_.logit_rows_max) * hidden, ws_.head_rows);
  arena.place("logits", size(options_.logit_rows_max) * size(shard_.vocabulary.local), ws_.logits);
  arena.place("verify attention", verify_bytes(), ws_.verify);
  if (config_.experts > 0) {
    ws_.moe_bytes = CudaExperts<T>::workspace_bytes(config_, shard_, options_.rows_max);
    arena.place("experts", ws_.moe_bytes, ws_.moe);
  }
}

template <class T>
kernels::cuda::VerifyShape CudaTarget<T>::verify_shape(int sequences, int rows_per_sequence) const {
  kernels::cuda::VerifyShape shape;
  shape.heads = std::max(shard_.heads.part.size(), 1);
  shape.latent = config_.kv_lora_rank;
  shape.rope = config_.rope_dim;
  shape.scratch_rows = limits::tree_nodes + 1;
  shape.sequences_max = sequences;
  shape.rows_per_sequence_max = rows_per_sequence;
  shape.version = options_.verify;
  return shape;
}

// Half of it is for gate and up of a SwiGLU, in float32.
template <class T>
std::size_t CudaTarget<T>::gemm_workspace_bytes() const {
  const std::size_t gate_up = size(options_.rows_max) * 2 * size(shared_width()) * sizeof(float);
  return std::max(kernels::cuda::DenseGemm::workspace_bytes_default, 2 * gate_up);
}

// Of the largest of all shapes that fit a pass.
template <class T>
std::size_t CudaTarget<T>::verify_bytes() const {
  std::size_t bytes = 0;
  for (int sequences = 1; sequences <= options_.sequences_max; ++sequences) {
    const int rows = std::min(options_.rows_max / sequences, limits::tree_nodes + 1);
    if (rows == 0) break;
    bytes =
        std::max(bytes, kernels::cuda::verify_workspace_bytes<T>(verify_shape(sequences, rows)));
  }
  return bytes;
}

template <class T>
Status CudaTarget<T>::finish_load() {
  return kernels::cuda::copy_to_device(inv_freq_, rope_.inv_freq.data(),
                                       rope_.inv_freq.size() * sizeof(float));
}

template class CudaTarget<float>;
template class CudaTarget<Bf16>;

}  // namespace copse
