// R = rows, N = block, h and g = query and key/value heads of this rank, d = head_dim.
#include "model/cuda/drafter_cuda.h"

#include <algorithm>
#include <cmath>

#include "kernels/draft_attention/draft_attention_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/round_state/round_state.h"
#include "model/cuda/linear.h"

namespace copse {

namespace cuda = kernels::cuda;

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

}  // namespace

template <class T>
CudaDrafter<T>::CudaDrafter(const DrafterConfig& config, const CudaDrafterOptions& options,
                            const Shard& shard, CudaTarget<T>& target, DeviceCollective& group,
                            cuda::DenseGemm*& gemm)
    : config_(config),
      options_(options),
      shard_(shard_drafter(config, shard)),
      target_(target),
      group_(group),
      gemm_(gemm),
      rope_(kernels::make_rope_table({config.head_dim, config.rope.theta, config.rope.factor,
                                      config.rope.original_positions, config.rope.beta_fast,
                                      config.rope.beta_slow, config.rope.attention_factor})) {}

template <class T>
void CudaDrafter<T>::place(const DrafterSpecs& specs, DeviceWeightPlan<T>& weights,
                           cuda::DeviceArena& arena) {
  const Range hidden = all(config_.hidden);
  const Range q = scaled(shard_.heads.part, config_.head_dim);
  const Range kv = scaled(shard_.kv_heads, config_.head_dim);
  const Range inner = shard_.inner.part;
  weights.matrix(specs.fc, hidden, shard_.features.part, fc_);
  weights.vector(specs.hidden_norm, hidden_norm_);
  weights.vector(specs.norm, norm_);
  layers_.resize(specs.layers.size());
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    const DrafterLayerSpecs& from = specs.layers[i];
    LayerWeights& layer = layers_[i];
    weights.vector(from.input_norm, layer.input_norm);
    weights.vector(from.post_attention_norm, layer.post_attention_norm);
    weights.stack(from.q.name, {{&from.q, q, hidden}, {&from.k, kv, hidden}, {&from.v, kv, hidden}},
                  layer.qkv);
    weights.matrix(from.o, hidden, q, layer.o);
    weights.vector(from.q_norm, layer.q_norm);
    weights.vector(from.k_norm, layer.k_norm);
    weights.stack(from.gate.name, {{&from.gate, inner, hidden}, {&from.up, inner, hidden}},
                  layer.gate_up);
    weights.matrix(from.down, hidden, inner, layer.down);
  }
  place_workspace(arena);
}

template <class T>
void CudaDrafter<T>::place_workspace(cuda::DeviceArena& arena) {
  const std::size_t block_rows = size(options_.sequences_max) * size(config_.block_size);
  const std::size_t rows = std::max(block_rows, size(options_.context_rows_max));
  const std::size_t hidden = size(config_.hidden);
  const std::size_t inner = size(shard_.inner.part.size());
  arena.place("drafter: frequencies", size(config_.head_dim / 2), inv_freq_);
  arena.place("drafter: residual", rows * hidden, ws_.residual);
  arena.place("drafter: normed", rows * hidden, ws_.normed);
  arena.place("drafter: part", rows * hidden, ws_.part);
  arena.place("drafter: angles", rows * size(config_.head_dim), ws_.angles);
  arena.place("drafter: queries, keys, values", rows * size(qkv_width()), ws_.qkv);
  arena.place("drafter: attended", rows * size(q_width()), ws_.attended);
  arena.place("drafter: activation", rows * inner, ws_.activation);
  arena.place("drafter: logits", block_rows * size(target_.vocabulary().local), ws_.logits);
  if (q_width() == 0) return;
  arena.place("drafter: attention",
              cuda::draft_attention_workspace_bytes(options_.sequences_max, config_.block_size,
                                                    shard_.heads.part.size(),
                                                    shard_.kv_heads.size(), config_.head_dim) /
                  sizeof(float),
              ws_.attention);
}

// As CudaTarget's.
template <class T>
std::size_t CudaDrafter<T>::gemm_workspace_bytes() const {
  const int rows = std::max(options_.sequences_max * config_.block_size, options_.context_rows_max);
  const std::size_t gate_up = size(rows) * 2 * size(shard_.inner.part.size()) * sizeof(float);
  return std::max(cuda::DenseGemm::workspace_bytes_default, 2 * gate_up);
}

template <class T>
Status CudaDrafter<T>::finish_load() {
  return cuda::copy_to_device(inv_freq_, rope_.inv_freq.data(),
                              rope_.inv_freq.size() * sizeof(float));
}

template <class T>
Status CudaDrafter<T>::angles(const std::int32_t* positions, int rows, Stream stream) {
  return cuda::rope_angles(
      {inv_freq_, positions, rope_.attention_factor, rows, rope_.dim(), ws_.angles}, stream);
}

template <class T>
Status CudaDrafter<T>::append_context(const CudaContextBatch<T>& batch,
                                      const CudaDraftCache<T>& cache, Stream stream) {
  const int rows = batch.rows();
  CHECK(rows > 0 && rows <= options_.context_rows_max);
  const Range columns = shard_.features.part;
  const std::size_t values = size(rows) * size(config_.hidden);
  COPSE_RETURN_IF_ERROR(
      (linear<T, float>(*gemm_, {batch.features + columns.begin, rows, config_.feature_width()},
                        fc_, {ws_.residual, rows, config_.hidden}, stream)));  // [R, hidden]
  if (columns.size() < config_.feature_width()) {
    COPSE_RETURN_IF_ERROR(group_.all_reduce_sum(ws_.residual, values, stream));
  }
  COPSE_RETURN_IF_ERROR(add_part(hidden_norm_, false, rows, stream));  // normed [R, hidden]
  COPSE_RETURN_IF_ERROR(angles(batch.positions, rows, stream));
  const int g = shard_.kv_heads.size();
  for (int layer = 0; layer < config_.layers && g > 0; ++layer) {
    const LayerWeights& w = layers_[size(layer)];
    // Keys and values are the last rows of the stacked projection.
    const DeviceMatrix<T> kv = {w.qkv.row(q_width()), 2 * cache_width(), config_.hidden};
    T* const keys = ws_.qkv + q_width();
    COPSE_RETURN_IF_ERROR((linear<T, T>(*gemm_, {ws_.normed, rows, config_.hidden}, kv,
                                        {keys, rows, qkv_width()}, stream)));  // [R, 2 g, d]
    COPSE_RETURN_IF_ERROR(norm_and_rotate(keys, g, w.k_norm, rows, stream));
    const std::size_t at = size(layer) * cache.layer_values();
    COPSE_RETURN_IF_ERROR(write_pages(batch, keys, cache.keys + at, stream));
    COPSE_RETURN_IF_ERROR(write_pages(batch, keys + cache_width(), cache.values + at, stream));
  }
  return {};
}

template <class T>
Status CudaDrafter<T>::write_pages(const CudaContextBatch<T>& batch, const T* rows, T* pages,
                                   Stream stream) {
  cuda::PageRows<T> call;
  call.sequences = batch.sequences;
  call.rows_per_sequence = batch.rows_per_sequence;
  call.rows = rows;
  call.stride = qkv_width();
  call.width = cache_width();
  call.slots = batch.slots;
  call.positions = batch.positions;
  call.page_tables = batch.page_tables;
  call.table_pages = options_.table_pages;
  call.pages = pages;
  return cuda::write_page_rows(call, stream);
}

template <class T>
Status CudaDrafter<T>::forward(const CudaDraftBatch& batch, const CudaDraftCache<T>& cache,
                               Stream stream) {
  const int rows = batch.sequences * config_.block_size;
  CHECK(batch.sequences > 0 && batch.sequences <= options_.sequences_max);
  COPSE_RETURN_IF_ERROR(target_.embed(batch.tokens, rows, ws_.residual, stream));  // [R, hidden]
  COPSE_RETURN_IF_ERROR(angles(batch.positions, rows, stream));
  COPSE_RETURN_IF_ERROR(add_part(layers_.front().input_norm, false, rows, stream));
  for (int layer = 0; layer < config_.layers; ++layer) {
    const LayerWeights& w = layers_[size(layer)];
    COPSE_RETURN_IF_ERROR(attention(layer, batch, cache, stream));               // part
    COPSE_RETURN_IF_ERROR(add_part(w.post_attention_norm, true, rows, stream));  // residual, normed
    COPSE_RETURN_IF_ERROR(mlp(w, rows, stream));                                 // part
    const bool last = layer + 1 == config_.layers;
    const DeviceVector& next = last ? norm_ : layers_[size(layer + 1)].input_norm;
    COPSE_RETURN_IF_ERROR(add_part(next, true, rows, stream));  // residual, normed [R, hidden]
  }
  return target_.head(ws_.normed, rows, ws_.logits, stream);  // [R, vocab_local]
}

template <class T>
Status CudaDrafter<T>::norm_and_rotate(T* heads, int count, const DeviceVector& norm, int rows,
                                       Stream stream) {
  const int d = config_.head_dim;
  cuda::RmsNorm<T, T> call;
  call.x = heads;
  call.x_row_stride = qkv_width();
  call.x_head_stride = d;
  call.y = heads;
  call.y_row_stride = qkv_width();
  call.y_head_stride = d;
  call.rows = rows;
  call.heads = count;
  call.dim = d;
  call.weight = norm.data;
  call.eps = static_cast<float>(config_.rms_eps);
  COPSE_RETURN_IF_ERROR(cuda::rms_norm(call, stream));
  return cuda::rope<T>(
      {heads, qkv_width(), d, rows, count, d, kernels::RopePairs::halves, ws_.angles}, stream);
}

template <class T>
Status CudaDrafter<T>::attention(int layer, const CudaDraftBatch& batch,
                                 const CudaDraftCache<T>& cache, Stream stream) {
  const LayerWeights& w = layers_[size(layer)];
  const int rows = batch.sequences * config_.block_size;
  const int h = shard_.heads.part.size();
  const int g = shard_.kv_heads.size();
  if (h == 0) {  // more ranks than heads
    return cuda::clear(ws_.part, size(rows) * size(config_.hidden) * sizeof(float), stream);
  }
  COPSE_RETURN_IF_ERROR((linear<T, T>(*gemm_, {ws_.normed, rows, config_.hidden}, w.qkv,
                                      {ws_.qkv, rows, qkv_width()}, stream)));  // [R, h + 2 g, d]
  COPSE_RETURN_IF_ERROR(norm_and_rotate(ws_.qkv, h, w.q_norm, rows, stream));
  COPSE_RETURN_IF_ERROR(norm_and_rotate(ws_.qkv + q_width(), g, w.k_norm, rows, stream));
  cuda::DraftAttention<T> call;
  call.sequences = batch.sequences;
  call.block = config_.block_size;
  call.heads = h;
  call.kv_heads = g;
  call.dim = config_.head_dim;
  call.window = config_.sliding_layers[size(layer)] ? config_.sliding_window : 0;
  call.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  call.q = ws_.qkv;
  call.q_stride = qkv_width();
  call.k = ws_.qkv + q_width();
  call.v = ws_.qkv + q_width() + cache_width();
  call.kv_stride = qkv_width();
  call.key_pages = cache.keys + size(layer) * cache.layer_values();
  call.value_pages = cache.values + size(layer) * cache.layer_values();
  call.out = ws_.attended;
  call.lengths = batch.lengths;
  call.slots = batch.slots;
  call.page_tables = batch.page_tables;
  call.page_table_stride = options_.table_pages;
  call.workspace = ws_.attention;
  COPSE_RETURN_IF_ERROR(cuda::draft_attention(call, stream));  // [R, h, d]
  return linear<T, float>(*gemm_, {ws_.attended, rows, q_width()}, w.o,
                          {ws_.part, rows, config_.hidden}, stream);  // [R, hidden]
}

template <class T>
Status CudaDrafter<T>::mlp(const LayerWeights& w, int rows, Stream stream) {
  const int inner = w.down.inputs;
  if (inner == 0) {  // more ranks than columns
    return cuda::clear(ws_.part, size(rows) * size(config_.hidden) * sizeof(float), stream);
  }
  COPSE_RETURN_IF_ERROR(linear_swiglu<T>(*gemm_, {ws_.normed, rows, config_.hidden}, w.gate_up,
                                         {ws_.activation, rows, inner}, stream));
  return linear<T, float>(*gemm_, {ws_.activation, rows, inner}, w.down,
                          {ws_.part, rows, config_.hidden}, stream);  // [R, hidden]
}

template <class T>
Status CudaDrafter<T>::add_part(const DeviceVector& norm, bool has_part, int rows, Stream stream) {
  cuda::AddRmsNorm<T> call;
  if (has_part) {
    COPSE_RETURN_IF_ERROR(
        group_.all_reduce_sum(ws_.part, size(rows) * size(config_.hidden), stream));
    call.part = ws_.part;
  }
  call.residual = ws_.residual;
  call.y = ws_.normed;
  call.rows = rows;
  call.dim = config_.hidden;
  call.weight = norm.data;
  call.eps = static_cast<float>(config_.rms_eps);
  return cuda::add_rms_norm(call, stream);
}

template class CudaDrafter<float>;
template class CudaDrafter<Bf16>;

}  // namespace copse
