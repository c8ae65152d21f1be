// One pass, top to bottom as model/deepseek/forward.cpp. R = rows, h = heads of this rank,
// L = latent.
#include "model/cuda/target_cuda.h"

#include <algorithm>

#include "kernels/gather/gather_cuda.h"
#include "kernels/mla_rows/mla_rows.h"
#include "kernels/moe_route/moe_route_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "model/cuda/linear.h"
#include "model/deepseek/target_route.h"

namespace copse {

namespace cuda = kernels::cuda;

template <class T>
Status CudaTarget<T>::forward(const CudaBatch& batch, const CudaLatentCache<T>& cache,
                              Stream stream) {
  const int rows = batch.rows();
  CHECK(cache.scratch_rows == limits::tree_nodes + 1);
  CHECK(rows > 0 && rows <= options_.rows_max && batch.logits() <= options_.logit_rows_max &&
        batch.sequences <= options_.sequences_max);
  COPSE_RETURN_IF_ERROR(embed(batch.tokens, rows, ws_.residual, stream));  // [R, hidden]
  COPSE_RETURN_IF_ERROR(cuda::rope_angles(
      {inv_freq_, batch.positions, rope_.attention_factor, rows, rope_.dim(), ws_.angles}, stream));
  COPSE_RETURN_IF_ERROR(cuda::verify_plan<T>(verify_shape(batch.sequences, batch.rows_per_sequence),
                                             batch.sequence, ws_.verify, stream));
  COPSE_RETURN_IF_ERROR(after(PassPart::attention, -1, stream));
  const DeviceVector* norm = &layers_.front().input_norm;
  COPSE_RETURN_IF_ERROR(add_part(-1, norm, rows, stream));
  for (int layer = 0; layer < config_.layers; ++layer) {
    const CudaLayerWeights<T>& w = layers_[static_cast<std::size_t>(layer)];
    COPSE_RETURN_IF_ERROR(attention(layer, batch, cache, stream));  // part [R, hidden]
    COPSE_RETURN_IF_ERROR(add_part(kNoLayer, &w.post_attention_norm, rows, stream));
    COPSE_RETURN_IF_ERROR(mlp(layer, batch, stream));  // part [R, hidden]
    const bool last = layer + 1 == config_.layers;
    norm = last ? nullptr : &layers_[static_cast<std::size_t>(layer + 1)].input_norm;
    if (last && batch.logit_rows == nullptr) norm = &norm_;
    COPSE_RETURN_IF_ERROR(add_part(layer, norm, rows, stream));  // residual, normed, features
  }
  COPSE_RETURN_IF_ERROR(logits_of(batch, stream));  // [n, vocab_local]
  return after(PassPart::dense, -1, stream);
}

template <class T>
Status CudaTarget<T>::after(PassPart part, int layer, Stream stream) {
  return observer_ == nullptr ? Status() : observer_->launched(part, layer, stream);
}

template <class T>
Status CudaTarget<T>::embed(const TokenId* tokens, int rows, float* out, Stream stream) {
  const Range held = shard_.embedding_rows;
  COPSE_RETURN_IF_ERROR(cuda::embed_rows<T>(
      {tokens, rows, embedding_.data, held.begin, held.size(), config_.hidden, out}, stream));
  if (held.size() == config_.vocabulary) return {};
  return group_.all_reduce_sum(
      out, static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.hidden), stream);
}

template <class T>
Status CudaTarget<T>::head(const T* normed, int rows, float* logits, Stream stream) {
  return linear<T, float>(*gemm_, {normed, rows, config_.hidden}, head_,
                          {logits, rows, shard_.vocabulary.local}, stream);
}

template <class T>
Status CudaTarget<T>::add_part(int layer_done, const DeviceVector* norm, int rows, Stream stream) {
  cuda::AddRmsNorm<T> call;
  const bool embedded = layer_done == -1;  // there is no part yet
  if (!embedded) {
    COPSE_RETURN_IF_ERROR(group_.all_reduce_sum(
        ws_.part, static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.hidden),
        stream));
    call.part = ws_.part;
  }
  call.residual = ws_.residual;
  call.features = feature_slice(layer_done);
  call.feature_stride = feature_width();
  call.y = norm == nullptr ? nullptr : ws_.normed;
  call.rows = rows;
  call.dim = config_.hidden;
  call.weight = norm == nullptr ? nullptr : norm->data;
  call.eps = static_cast<float>(config_.rms_eps);
  COPSE_RETURN_IF_ERROR(cuda::add_rms_norm(call, stream));
  return after(PassPart::rest, layer_done, stream);
}

template <class T>
Status CudaTarget<T>::attention(int layer, const CudaBatch& batch, const CudaLatentCache<T>& cache,
                                Stream stream) {
  const CudaLayerWeights<T>& w = layers_[static_cast<std::size_t>(layer)];
  const int rows = batch.rows();
  const int heads = shard_.heads.part.size();
  const int latent = config_.kv_lora_rank;
  const int value = config_.value_dim;
  const int width = config_.q_lora_rank + config_.latent_width();
  const auto pairs =
      config_.rope.interleaved ? kernels::RopePairs::interleaved : kernels::RopePairs::halves;
  COPSE_RETURN_IF_ERROR((linear<T, T>(*gemm_, {ws_.normed, rows, config_.hidden}, w.low_rank,
                                      {ws_.low_rank, rows, width}, stream)));
  cuda::LatentRows<T> latents;  // scratch rows [L + rope], q_lora normed in place
  latents.projected = ws_.low_rank;
  latents.rows = rows;
  latents.rows_per_sequence = batch.rows_per_sequence;
  latents.sequences = batch.sequence;
  latents.q_lora = config_.q_lora_rank;
  latents.latent = latent;
  latents.rope = config_.rope_dim;
  latents.q_norm = w.q_a_norm.data;
  latents.kv_norm = w.kv_a_norm.data;
  latents.eps = static_cast<float>(config_.lora_rms_eps);
  latents.angles = ws_.angles;
  latents.pairs = pairs;
  latents.scratch = cache.layer_scratch(layer);
  latents.scratch_rows = cache.scratch_rows;
  COPSE_RETURN_IF_ERROR(cuda::latent_rows(latents, stream));
  if (heads == 0) return no_part(rows, stream);              // more ranks than heads
  COPSE_RETURN_IF_ERROR(absorbed_queries(w, rows, stream));  // [R, h, L + rope]
  cuda::VerifyAttentionCall<T> call;
  call.shape = verify_shape(batch.sequences, batch.rows_per_sequence);
  call.scale = static_cast<float>(config_.softmax_scale());
  call.rows = rows;
  call.pages_count = cache.pages_count;
  call.slots = cache.slots;
  call.q = ws_.q_absorbed;
  call.pages = cache.layer_pages(layer);
  call.scratch = cache.layer_scratch(layer);
  call.out = ws_.attended;
  call.sequences = batch.sequence;
  call.workspace = ws_.verify;
  COPSE_RETURN_IF_ERROR(after(PassPart::dense, layer, stream));
  COPSE_RETURN_IF_ERROR(cuda::verify_attention(call, stream));  // [R, h, L]
  COPSE_RETURN_IF_ERROR(after(PassPart::attention, layer, stream));
  COPSE_RETURN_IF_ERROR(linear_heads<T>(*gemm_, heads, {ws_.attended, rows, heads * latent}, latent,
                                        w.absorb_value, {ws_.values, rows, heads * value}, value,
                                        stream));  // [R, h, value]
  COPSE_RETURN_IF_ERROR((linear<T, float>(*gemm_, {ws_.values, rows, heads * value}, w.o,
                                          {ws_.part, rows, config_.hidden}, stream)));
  return after(PassPart::dense, layer, stream);  // part [R, hidden]
}

template <class T>
Status CudaTarget<T>::absorbed_queries(const CudaLayerWeights<T>& w, int rows, Stream stream) {
  const int heads = shard_.heads.part.size();
  const int head = config_.head_dim();
  const int width = config_.latent_width();
  const int low_rank = config_.q_lora_rank + width;
  const bool lora = config_.q_lora_rank > 0;
  const DeviceRows<const T> input = {lora ? ws_.low_rank : ws_.normed, rows,
                                     lora ? low_rank : config_.hidden};
  COPSE_RETURN_IF_ERROR((linear<T, T>(*gemm_, input, w.q, {ws_.q, rows, heads * head}, stream)));
  COPSE_RETURN_IF_ERROR(linear_heads<T>(*gemm_, heads, {ws_.q, rows, heads * head}, head,
                                        w.absorb_key, {ws_.q_absorbed, rows, heads * width}, width,
                                        stream));
  cuda::QueryRope<T> rope;
  rope.q = ws_.q;
  rope.out = ws_.q_absorbed;
  rope.rows = rows;
  rope.heads = heads;
  rope.nope = config_.nope_dim;
  rope.rope = config_.rope_dim;
  rope.latent = config_.kv_lora_rank;
  rope.angles = ws_.angles;
  rope.pairs =
      config_.rope.interleaved ? kernels::RopePairs::interleaved : kernels::RopePairs::halves;
  return cuda::query_rope(rope, stream);
}

template <class T>
Status CudaTarget<T>::mlp(int layer, const CudaBatch& batch, Stream stream) {
  const CudaLayerWeights<T>& w = layers_[static_cast<std::size_t>(layer)];
  const int rows = batch.rows();
  if (!config_.is_moe(layer)) {
    if (w.down.inputs == 0) return no_part(rows, stream);  // more ranks than columns
    COPSE_RETURN_IF_ERROR(linear_swiglu<T>(*gemm_, {ws_.normed, rows, config_.hidden}, w.gate_up,
                                           {ws_.activation, rows, w.down.inputs}, stream));
    return down(w, rows, false, stream);
  }
  COPSE_RETURN_IF_ERROR(scores_and_shared(w, rows, stream));  // [R, E]
  cuda::MoeRoute route;
  route.logits = ws_.scores;
  route.rows = rows;
  route.bias = w.router_bias.data;
  route.spec = route_spec(config_);
  route.positions = batch.positions;
  route.ids = ws_.expert_ids;
  route.weights = ws_.expert_weights;
  COPSE_RETURN_IF_ERROR(cuda::moe_route(route, stream));  // [R, k]
  if (observer_ != nullptr) {
    COPSE_RETURN_IF_ERROR(observer_->routed(layer, ws_.expert_ids, stream));
  }
  COPSE_RETURN_IF_ERROR(w.experts.run(ws_.normed, rows, ws_.expert_ids, ws_.expert_weights,
                                      ws_.part, ws_.moe, ws_.moe_bytes, stream));  // [R, hidden]
  COPSE_RETURN_IF_ERROR(after(PassPart::experts, layer, stream));
  if (w.down.inputs == 0) return {};
  return down(w, rows, true, stream);
}

template <class T>
Status CudaTarget<T>::scores_and_shared(const CudaLayerWeights<T>& w, int rows, Stream stream) {
  const DeviceRows<const T> x = {ws_.normed, rows, config_.hidden};
  COPSE_TRY(const cuda::GemmCall scores,
            (planned<T, float>(*gemm_, x, w.router, {ws_.scores, rows, config_.experts}, false)));
  if (w.down.inputs == 0)
    return gemm_->launch(scores.shape, x.data, scores.weight, scores.y, stream);
  COPSE_TRY(const cuda::GemmCall shared,
            (planned<T, T>(*gemm_, x, w.gate_up, {ws_.activation, rows, w.down.inputs}, true)));
  return gemm_->launch_pair(scores, shared, x.data, stream);
}

template <class T>
Status CudaTarget<T>::down(const CudaLayerWeights<T>& w, int rows, bool accumulate, Stream stream) {
  const int inner = w.down.inputs;
  COPSE_RETURN_IF_ERROR((linear<T, float>(*gemm_, {ws_.activation, rows, inner}, w.down,
                                          {ws_.part, rows, config_.hidden}, stream, accumulate)));
  return after(PassPart::dense, -1, stream);
}

template <class T>
Status CudaTarget<T>::logits_of(const CudaBatch& batch, Stream stream) {
  if (batch.logit_rows == nullptr) return head(ws_.normed, batch.rows(), ws_.logits, stream);
  const std::int64_t bytes = static_cast<std::int64_t>(config_.hidden) * 4;
  cuda::CopyRows wanted;
  wanted.from = ws_.residual;
  wanted.from_stride = bytes;
  wanted.index = batch.logit_rows;
  wanted.count = batch.logit_count;
  wanted.row_bytes = bytes;
  wanted.out = ws_.head_rows;
  wanted.out_stride = bytes;
  COPSE_RETURN_IF_ERROR(cuda::copy_rows(wanted, stream));
  cuda::AddRmsNorm<T> call;
  call.residual = ws_.head_rows;
  call.y = ws_.normed;
  call.rows = batch.logit_count;
  call.dim = config_.hidden;
  call.weight = norm_.data;
  call.eps = static_cast<float>(config_.rms_eps);
  COPSE_RETURN_IF_ERROR(cuda::add_rms_norm(call, stream));
  return head(ws_.normed, batch.logit_count, ws_.logits, stream);
}

// A rank with nothing to add.
template <class T>
Status CudaTarget<T>::no_part(int rows, Stream stream) {
  const std::size_t bytes =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.hidden) * sizeof(float);
  return cuda::clear(ws_.part, bytes, stream);
}

template class CudaTarget<float>;
template class CudaTarget<Bf16>;

}  // namespace copse
