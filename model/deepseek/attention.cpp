// Multi-head latent attention with kv_b_proj absorbed into queries and outputs (arXiv 2405.04434,
// appendix C): the cache holds one latent row per token, whatever the number of heads.
// R = rows of the batch, h = heads of this rank, L = latent (kv_lora_rank).
#include <algorithm>

#include "kernels/rms_norm/rms_norm.h"
#include "model/deepseek/target_parts.h"

namespace copse {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;
using kernels::matrix;

// Head `head` of a [rows][heads][width] buffer, `columns` values from `first`.
Matrix head_part(std::vector<float>& buffer, int rows, int heads, int width, int head, int first,
                 int columns) {
  return {buffer.data() + head * width + first, rows, columns,
          static_cast<std::ptrdiff_t>(heads) * width};
}

void copy_into_scratch(const ForwardBatch& batch, const std::vector<float>& latent, int width,
                       int layer, LatentCache& cache) {
  const auto count = static_cast<std::size_t>(width);
  for (const SequenceRows& sequence : batch.sequences) {
    const float* from = latent.data() + static_cast<std::size_t>(sequence.first_row) * count;
    std::copy_n(from, static_cast<std::size_t>(sequence.rows) * count,
                cache.scratch(layer, sequence.scratch_slot).data());
  }
}

void describe_sequences(const ForwardBatch& batch,
                        std::vector<kernels::VerifySequence>& sequences) {
  sequences.clear();  // keeps its capacity
  for (const SequenceRows& sequence : batch.sequences) {
    sequences.push_back({sequence.first_row, sequence.rows, sequence.prefix_length,
                         sequence.scratch_slot, sequence.pages.data(),
                         sequence.ancestors.empty() ? nullptr : sequence.ancestors.data(),
                         sequence.mask_words});
  }
}

}  // namespace

void TargetModel::Parts::latent_rows(const AttentionWeights& w, int rows) {
  const int latent = config.kv_lora_rank;
  const int width = config.latent_width();
  const Matrix kv_latent = {ws.latent.data(), rows, latent, width};
  kernels::rms_norm(kv_latent, w.kv_a_norm, lora_eps(), kv_latent, threads);  // [R, L]
  rotate({ws.latent.data() + latent, rows, 1, width, config.rope_dim});       // [R, rope]
}

void TargetModel::Parts::absorbed_queries(const AttentionWeights& w, int rows) {
  const int heads = shard.heads.part.size();
  const int nope = config.nope_dim;
  const int rope_dim = config.rope_dim;
  const int latent = config.kv_lora_rank;
  const int width = config.latent_width();
  ConstMatrix input = matrix(ws.normed.data(), rows, config.hidden);
  if (config.q_lora_rank > 0) {
    const Matrix q_lora = matrix(ws.q_lora.data(), rows, config.q_lora_rank);
    kernels::rms_norm(q_lora, w.q_a_norm, lora_eps(), q_lora, threads);
    input = q_lora;
  }
  const Matrix q = matrix(ws.q.data(), rows, heads * (nope + rope_dim));
  kernels::linear(input, w.q, q, threads);  // [R, h, nope + rope]
  for (int h = 0; h < heads; ++h) {         // [R, h, L + rope]
    kernels::linear(head_part(ws.q, rows, heads, nope + rope_dim, h, 0, nope),
                    w.absorb_key[static_cast<std::size_t>(h)],
                    head_part(ws.q_absorbed, rows, heads, width, h, 0, latent), threads);
    const Matrix from = head_part(ws.q, rows, heads, nope + rope_dim, h, nope, rope_dim);
    const Matrix to = head_part(ws.q_absorbed, rows, heads, width, h, latent, rope_dim);
    for (int r = 0; r < rows; ++r) std::copy_n(from.row(r), rope_dim, to.row(r));
  }
  rotate({ws.q_absorbed.data() + latent, rows, heads, static_cast<std::ptrdiff_t>(heads) * width,
          width});  // [R, h, rope]
}

void TargetModel::Parts::attention(int layer, const ForwardBatch& batch, LatentCache& cache) {
  const AttentionWeights& w = weights.layers[static_cast<std::size_t>(layer)].attention;
  const int rows = static_cast<int>(batch.token_ids.size());
  const int heads = shard.heads.part.size();
  const int latent = config.kv_lora_rank;
  const int value = config.value_dim;
  const Matrix part = matrix(ws.part.data(), rows, config.hidden);

  latent_rows(w, rows);  // [R, L + rope]
  copy_into_scratch(batch, ws.latent, config.latent_width(), layer, cache);
  if (heads == 0) {  // more ranks than heads: nothing to add
    std::fill_n(part.data, static_cast<std::size_t>(rows) * static_cast<std::size_t>(part.columns),
                0.0f);
    return;
  }
  absorbed_queries(w, rows);  // [R, h, L + rope]
  describe_sequences(batch, ws.sequences);
  kernels::VerifyAttention call;
  call.heads = heads;
  call.latent = latent;
  call.rope = config.rope_dim;
  call.scale = static_cast<float>(config.softmax_scale());
  call.scratch_rows = cache.shape().scratch_rows;
  call.q = ws.q_absorbed.data();
  call.pages = cache.pages(layer).data();
  call.scratch = cache.scratch(layer).data();
  call.out = ws.attended.data();
  call.sequences = ws.sequences;
  kernels::verify_attention(call, threads);  // [R, h, L]
  for (int h = 0; h < heads; ++h) {          // [R, h, value]
    kernels::linear(head_part(ws.attended, rows, heads, latent, h, 0, latent),
                    w.absorb_value[static_cast<std::size_t>(h)],
                    head_part(ws.values, rows, heads, value, h, 0, value), threads);
  }
  kernels::linear(matrix(ws.values.data(), rows, heads * value), w.o, part, threads,
                  shard.heads.leaves);  // [R, hidden]
}

// By the angles of the batch's positions, in the checkpoint's pair layout.
void TargetModel::Parts::rotate(const kernels::RopeHeads& heads) {
  const int dim = config.rope_dim;
  const auto pairs =
      config.rope.interleaved ? kernels::RopePairs::interleaved : kernels::RopePairs::halves;
  const auto count = static_cast<std::size_t>(heads.rows) * static_cast<std::size_t>(dim);
  kernels::rope(heads, std::span(ws.angles).first(count), dim, pairs, threads);
}

}  // namespace copse
