#include "model/score/sequence_runner.h"

#include <algorithm>
#include <numeric>

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

int pages_of(int tokens) {
  return (tokens + limits::page_tokens - 1) / limits::page_tokens;
}

LatentCache::Shape cache_shape(const TargetModel& model, int tokens) {
  LatentCache::Shape shape;
  shape.layers = model.config().layers;
  shape.width = model.config().latent_width();
  shape.pages = pages_of(tokens);
  shape.slots = 1;
  return shape;
}

std::vector<std::int32_t> counting(int from, int count) {
  std::vector<std::int32_t> values(size(count));
  std::iota(values.begin(), values.end(), from);
  return values;
}

}  // namespace

SequenceRunner::SequenceRunner(TargetModel& model, int tokens_max)
    : model_(model),
      cache_(cache_shape(model, tokens_max)),
      chunk_rows_(std::min(model.rows_max(), limits::prefill_chunk_rows)),
      pages_(counting(0, pages_of(tokens_max))) {}

Result<ForwardOutput> SequenceRunner::append(std::span<const TokenId> tokens, Logits wanted) {
  const int rows = static_cast<int>(tokens.size());
  CHECK(rows > 0 && rows <= chunk_rows_);
  CHECK(pages_of(length_ + rows) <= static_cast<int>(pages_.size()));
  SequenceRows sequence;
  sequence.rows = rows;
  sequence.prefix_length = length_;
  sequence.pages = pages_;
  const std::vector<std::int32_t> positions = counting(length_, rows);
  const std::vector<std::int32_t> logit_rows =
      wanted == Logits::all ? counting(0, rows) : counting(rows - 1, 1);
  ForwardBatch batch;
  batch.token_ids = tokens;
  batch.positions = positions;
  batch.sequences = std::span(&sequence, 1);
  batch.logit_rows = logit_rows;
  COPSE_TRY(const ForwardOutput output, model_.forward(batch, cache_));
  for (int layer = 0; layer < cache_.shape().layers; ++layer) {
    for (int r = 0; r < rows; ++r) {
      const int position = length_ + r;
      const std::span<float> from = cache_.scratch_row(layer, 0, r);
      std::copy(
          from.begin(), from.end(),
          cache_.page_row(layer, position / limits::page_tokens, position % limits::page_tokens)
              .begin());
    }
  }
  length_ += rows;
  return output;
}

Result<ForwardOutput> SequenceRunner::tree(int prefix_length, std::span<const TokenId> tokens,
                                           std::span<const std::int32_t> parents) {
  const int rows = static_cast<int>(tokens.size());
  CHECK(prefix_length <= length_ && parents.size() == tokens.size());
  SequenceRows sequence;
  sequence.rows = rows;
  sequence.prefix_length = prefix_length;
  sequence.pages = pages_;
  sequence.parents = parents;
  sequence.mask_words = (rows + 63) / 64;
  std::vector<std::uint64_t> ancestors(size(rows) * size(sequence.mask_words));
  std::vector<std::int32_t> positions(size(rows));
  for (int r = 0; r < rows; ++r) {
    const int parent = parents[size(r)];
    CHECK(parent >= -1 && parent < r);
    std::uint64_t* own = ancestors.data() + size(r * sequence.mask_words);
    positions[size(r)] = parent < 0 ? prefix_length : positions[size(parent)] + 1;
    if (parent >= 0) {
      std::copy_n(ancestors.data() + size(parent * sequence.mask_words), sequence.mask_words, own);
    }
    own[r / 64] |= std::uint64_t{1} << (r % 64);
  }
  sequence.ancestors = ancestors;
  const std::vector<std::int32_t> logit_rows = counting(0, rows);
  ForwardBatch batch;
  batch.token_ids = tokens;
  batch.positions = positions;
  batch.sequences = std::span(&sequence, 1);
  batch.logit_rows = logit_rows;
  return model_.forward(batch, cache_);
}

}  // namespace copse
