// Step 4 (arXiv 2602.06036): the drafter's two passes. R = rows, B = sequences, N = block size,
// P = draft positions, h and g = query and key/value heads of this rank, d = head_dim.
#include <algorithm>
#include <cmath>

#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/swiglu/swiglu.h"
#include "model/dflash/drafter_parts.h"

namespace copse {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;
using kernels::matrix;

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Rows 1 .. positions of every block to the front: what follows needs no others.
int keep_drafted(Matrix rows, int sequences, int block, int positions) {
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < positions; ++i) {
      std::copy_n(rows.row(s * block + 1 + i), rows.columns, rows.row(s * positions + i));
    }
  }
  return sequences * positions;
}

// Rows of all heads as one matrix, for a norm per head.
Matrix per_head(std::vector<float>& buffer, int rows, int heads, int dim) {
  return matrix(buffer.data(), rows * heads, dim);
}

void write_page_rows(std::span<const ContextBatch::Destination> destinations,
                     const std::vector<float>& from, std::size_t width, std::span<float> pages) {
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const auto& [page, row] = destinations[i];
    const std::size_t at = (size(page) * limits::page_tokens + size(row)) * width;
    CHECK(page >= 0 && row >= 0 && row < limits::page_tokens && at + width <= pages.size());
    std::copy_n(from.data() + i * width, width, pages.data() + at);
  }
}

}  // namespace

Status DrafterModel::append_context(const ContextBatch& batch, DraftCache& cache) {
  Parts& m = *parts_;
  DrafterWorkspace& ws = m.ws;
  const DrafterConfig& config = m.config;
  const int rows = static_cast<int>(batch.feature_rows.size());
  CHECK(rows <= m.options.context_rows_max && batch.positions.size() == size(rows) &&
        batch.destinations.size() == size(rows));
  if (rows == 0) return {};
  const auto eps = static_cast<float>(config.rms_eps);
  const Range columns = m.shard.features.part;
  const std::size_t width = size(config.feature_width());
  for (int r = 0; r < rows; ++r) {
    const std::size_t from = size(batch.feature_rows[size(r)]) * width;
    CHECK(from + width <= batch.features.size());
    std::copy_n(batch.features.data() + from + size(columns.begin), columns.size(),
                ws.features.data() + size(r) * size(columns.size()));
  }
  const Matrix context = matrix(ws.residual.data(), rows, config.hidden);
  kernels::linear(matrix(ws.features.data(), rows, columns.size()), m.weights.fc, context,
                  m.threads, m.shard.features.leaves);  // [R, hidden]
  if (columns.size() < config.feature_width()) {
    COPSE_RETURN_IF_ERROR(
        m.group.all_reduce_sum(std::span(ws.residual).first(size(rows) * size(config.hidden))));
  }
  kernels::rms_norm(context, m.weights.hidden_norm, eps, context, m.threads);  // [R, hidden]
  kernels::rope_angles(m.rope, batch.positions,
                       std::span(ws.angles).first(size(rows) * size(config.head_dim)));
  const std::size_t kv_width = size(m.shard.kv_heads.size()) * size(config.head_dim);
  for (int layer = 0; layer < config.layers && kv_width > 0; ++layer) {
    m.keys_and_values(m.weights.layers[size(layer)], context);  // [R, g, d] each
    write_page_rows(batch.destinations, ws.k, kv_width, cache.keys(layer));
    write_page_rows(batch.destinations, ws.v, kv_width, cache.values(layer));
  }
  return {};
}

Result<DraftOutput> DrafterModel::forward(const DraftBatch& batch, const DraftCache& cache) {
  Parts& m = *parts_;
  DrafterWorkspace& ws = m.ws;
  const DrafterConfig& config = m.config;
  const int block = config.block_size;
  const int sequences = static_cast<int>(batch.sequences.size());
  CHECK(sequences <= m.options.sequences_max);
  const int positions = batch.positions == 0 ? block - 1 : batch.positions;
  CHECK(positions > 0 && positions < block);
  int rows = sequences * block;
  const int hidden = config.hidden;
  const auto eps = static_cast<float>(config.rms_eps);
  ws.contexts.clear();
  for (int s = 0; s < sequences; ++s) {
    const DraftSequence& sequence = batch.sequences[size(s)];
    CHECK(sequence.pages.size() * limits::page_tokens >= size(sequence.prefix_length));
    ws.contexts.push_back({sequence.prefix_length, sequence.pages.data()});
    for (int i = 0; i < block; ++i) {
      ws.tokens[size(s * block + i)] = i == 0 ? sequence.bonus : config.mask_token;
      ws.positions[size(s * block + i)] = sequence.prefix_length + i;
    }
  }
  const auto residual = [&] { return matrix(ws.residual.data(), rows, hidden); };
  const auto normed = [&] { return matrix(ws.normed.data(), rows, hidden); };
  COPSE_RETURN_IF_ERROR(
      m.tables.embed(std::span(ws.tokens).first(size(rows)), residual(), m.group));  // [R, hidden]
  kernels::rope_angles(m.rope, std::span(ws.positions).first(size(rows)),
                       std::span(ws.angles).first(size(rows) * size(config.head_dim)));
  for (int layer = 0; layer < config.layers; ++layer) {
    const DrafterLayerWeights& w = m.weights.layers[size(layer)];
    kernels::rms_norm(residual(), w.input_norm, eps, normed(), m.threads);
    m.attention(layer, w, cache, rows);        // part [R, hidden]
    COPSE_RETURN_IF_ERROR(m.add_parts(rows));  // residual [R, hidden]
    if (layer + 1 == config.layers) rows = keep_drafted(residual(), sequences, block, positions);
    kernels::rms_norm(residual(), w.post_attention_norm, eps, normed(), m.threads);
    m.mlp(w, rows);                            // part [R, hidden]
    COPSE_RETURN_IF_ERROR(m.add_parts(rows));  // residual [R, hidden]
  }
  const int local = m.tables.shard().local;
  kernels::rms_norm(residual(), m.weights.norm, eps, normed(), m.threads);  // [B * P, hidden]
  m.tables.logits(normed(), matrix(ws.logits.data(), rows, local), m.threads);
  return DraftOutput{std::span(ws.logits).first(size(rows) * size(local))};
}

void DrafterModel::Parts::keys_and_values(const DrafterLayerWeights& w, ConstMatrix x) {
  const int g = shard.kv_heads.size();
  const int d = config.head_dim;
  const auto eps = static_cast<float>(config.rms_eps);
  kernels::linear(x, w.k, matrix(ws.k.data(), x.rows, g * d), threads);
  kernels::linear(x, w.v, matrix(ws.v.data(), x.rows, g * d), threads);
  const Matrix keys = per_head(ws.k, x.rows, g, d);
  kernels::rms_norm(keys, w.k_norm, eps, keys, threads);
  kernels::rope({ws.k.data(), x.rows, g, static_cast<std::ptrdiff_t>(g) * d, d},
                std::span(ws.angles).first(size(x.rows) * size(d)), d, kernels::RopePairs::halves,
                threads);
}

void DrafterModel::Parts::attention(int layer, const DrafterLayerWeights& w,
                                    const DraftCache& cache, int rows) {
  const int h = shard.heads.part.size();
  const int g = shard.kv_heads.size();
  const int d = config.head_dim;
  const Matrix part = matrix(ws.part.data(), rows, config.hidden);
  if (h == 0) {  // more ranks than heads: nothing to add
    std::fill_n(part.data, size(rows) * size(config.hidden), 0.0f);
    return;
  }
  const ConstMatrix x = matrix(ws.normed.data(), rows, config.hidden);
  const Matrix queries = per_head(ws.q, rows, h, d);
  kernels::linear(x, w.q, matrix(ws.q.data(), rows, h * d), threads);  // [R, h, d]
  kernels::rms_norm(queries, w.q_norm, static_cast<float>(config.rms_eps), queries, threads);
  kernels::rope({ws.q.data(), rows, h, static_cast<std::ptrdiff_t>(h) * d, d},
                std::span(ws.angles).first(size(rows) * size(d)), d, kernels::RopePairs::halves,
                threads);
  keys_and_values(w, x);  // [R, g, d] each
  kernels::DraftAttention call;
  call.heads = h;
  call.kv_heads = g;
  call.dim = d;
  call.block = config.block_size;
  call.window = config.sliding_layers[size(layer)] ? config.sliding_window : 0;
  call.scale = 1.0f / std::sqrt(static_cast<float>(d));
  call.q = ws.q.data();
  call.k = ws.k.data();
  call.v = ws.v.data();
  call.key_pages = cache.keys(layer).data();
  call.value_pages = cache.values(layer).data();
  call.out = ws.attended.data();
  call.sequences = ws.contexts;
  kernels::draft_attention(call, threads);  // [R, h, d]
  kernels::linear(matrix(ws.attended.data(), rows, h * d), w.o, part, threads,
                  shard.heads.leaves);  // [R, hidden]
}

void DrafterModel::Parts::mlp(const DrafterLayerWeights& w, int rows) {
  const int inner = shard.inner.part.size();
  const Matrix part = matrix(ws.part.data(), rows, config.hidden);
  if (inner == 0) {  // more ranks than columns: nothing to add
    std::fill_n(part.data, size(rows) * size(config.hidden), 0.0f);
    return;
  }
  const ConstMatrix x = matrix(ws.normed.data(), rows, config.hidden);
  const Matrix gate = matrix(ws.gate.data(), rows, inner);
  const Matrix up = matrix(ws.up.data(), rows, inner);
  kernels::linear(x, w.mlp.gate, gate, threads);  // [R, inner of this rank]
  kernels::linear(x, w.mlp.up, up, threads);
  kernels::swiglu(gate, up, gate, threads);
  kernels::linear(gate, w.mlp.down, part, threads, shard.inner.leaves);  // [R, hidden]
}

Status DrafterModel::Parts::add_parts(int rows) {
  const std::size_t count = size(rows) * size(config.hidden);
  const std::span<float> sum = std::span(ws.part).first(count);
  COPSE_RETURN_IF_ERROR(group.all_reduce_sum(sum));
  for (std::size_t i = 0; i < count; ++i) ws.residual[i] += sum[i];
  return {};
}

}  // namespace copse
