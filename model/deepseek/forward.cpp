// Step 6 as the paper has it (arXiv 2412.19437, section 2.1). R = rows of the batch.
#include <algorithm>

#include "kernels/rms_norm/rms_norm.h"
#include "model/deepseek/target_parts.h"

namespace copse {
namespace {

using kernels::matrix;

void check_batch(const ForwardBatch& batch, const TargetOptions& options,
                 const LatentCache& cache) {
  int rows = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    CHECK(sequence.first_row == rows && sequence.rows > 0);
    CHECK(sequence.rows <= cache.shape().scratch_rows);
    CHECK(sequence.scratch_slot >= 0 && sequence.scratch_slot < cache.shape().slots);
    CHECK(sequence.prefix_length >= 0 && sequence.pages.size() * limits::page_tokens >=
                                             static_cast<std::size_t>(sequence.prefix_length));
    CHECK(sequence.ancestors.empty() ||
          sequence.ancestors.size() >= static_cast<std::size_t>(sequence.rows) *
                                           static_cast<std::size_t>(sequence.mask_words));
    rows += sequence.rows;
  }
  CHECK(rows <= options.rows_max && static_cast<std::size_t>(rows) == batch.token_ids.size());
  CHECK(batch.positions.size() == batch.token_ids.size());
  CHECK(batch.logit_rows.size() <= static_cast<std::size_t>(options.logit_rows_max));
}

}  // namespace

Result<ForwardOutput> TargetModel::forward(const ForwardBatch& batch, LatentCache& cache) {
  Parts& m = *parts_;
  TargetWorkspace& ws = m.ws;
  check_batch(batch, m.options, cache);
  const int rows = static_cast<int>(batch.token_ids.size());
  const int hidden = m.config.hidden;
  const auto eps = static_cast<float>(m.config.rms_eps);
  const auto residual = matrix(ws.residual.data(), rows, hidden);
  const auto normed = matrix(ws.normed.data(), rows, hidden);

  COPSE_RETURN_IF_ERROR(m.tables.embed(batch.token_ids, residual, m.group));  // [R, hidden]
  kernels::rope_angles(
      m.rope, batch.positions,
      std::span(ws.angles).first(batch.positions.size() * static_cast<std::size_t>(m.rope.dim())));
  m.capture(-1, rows);
  for (int layer = 0; layer < m.config.layers; ++layer) {
    const LayerWeights& w = m.weights.layers[static_cast<std::size_t>(layer)];
    kernels::rms_norm(residual, w.input_norm, eps, normed, m.threads);  // [R, hidden]
    COPSE_RETURN_IF_ERROR(m.low_rank(w.attention, rows));  // q_lora and latent [R, L + rope]
    m.attention(layer, batch, cache);                      // part [R, hidden]
    COPSE_RETURN_IF_ERROR(m.add_parts(rows));              // residual [R, hidden]
    kernels::rms_norm(residual, w.post_attention_norm, eps, normed, m.threads);
    m.mlp(layer, rows);                        // part [R, hidden]
    COPSE_RETURN_IF_ERROR(m.add_parts(rows));  // residual [R, hidden]
    m.capture(layer, rows);                    // features [R, features * hidden]
  }
  const int wanted = static_cast<int>(batch.logit_rows.size());
  const auto head_rows = matrix(ws.head_rows.data(), wanted, hidden);
  for (int i = 0; i < wanted; ++i) {
    const int row = batch.logit_rows[static_cast<std::size_t>(i)];
    CHECK(row >= 0 && row < rows);
    std::copy_n(residual.row(row), hidden, head_rows.row(i));
  }
  const int local = m.tables.shard().local;
  const auto logits = matrix(ws.logits.data(), wanted, local);
  kernels::rms_norm(head_rows, m.weights.norm, eps, head_rows, m.threads);  // [n, hidden]
  m.tables.logits(head_rows, logits, m.threads);                            // [n, vocab_local]
  return ForwardOutput{
      std::span(ws.logits).first(batch.logit_rows.size() * static_cast<std::size_t>(local)),
      std::span(ws.features)
          .first(batch.token_ids.size() * static_cast<std::size_t>(feature_width()))};
}

Status TargetModel::Parts::add_parts(int rows) {
  const std::size_t count =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(config.hidden);
  const std::span<float> sum = std::span(ws.part).first(count);
  COPSE_RETURN_IF_ERROR(group.all_reduce_sum(sum));
  for (std::size_t i = 0; i < count; ++i) ws.residual[i] += sum[i];
  return {};
}

void TargetModel::Parts::capture(int layer, int rows) {
  const auto& wanted = options.feature_layers;
  const auto at = std::find(wanted.begin(), wanted.end(), layer);
  if (at == wanted.end()) return;
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const std::size_t width = wanted.size() * hidden;
  const std::size_t offset = static_cast<std::size_t>(at - wanted.begin()) * hidden;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    std::copy_n(ws.residual.data() + r * hidden, hidden, ws.features.data() + r * width + offset);
  }
}

}  // namespace copse
