#include "worker/sampler.h"

namespace copse {

using kernels::FilterStage;
using kernels::SampleLogits;
using kernels::SampleRow;
using kernels::SampleThreshold;

Sampler::Sampler(int rows_max, int vocabulary, const VocabularyShard& shard, Collective& group,
                 ThreadPool& threads)
    : shard_(shard),
      group_(group),
      threads_(threads),
      filter_(rows_max, shard.local, vocabulary),
      mine_(static_cast<std::size_t>(rows_max)),
      all_(static_cast<std::size_t>(rows_max * group.world_size())),
      maxima_(static_cast<std::size_t>(rows_max * group.world_size())),
      tokens_(static_cast<std::size_t>(rows_max)) {}

Result<std::span<const SampleThreshold>> Sampler::thresholds(const SampleLogits& logits,
                                                             std::span<const SampleRow> rows) {
  if (!kernels::SampleFilter::needed(rows)) return std::span<const SampleThreshold>();
  const std::span<const float> mine = filter_.local_maxima(logits, rows);
  const auto gathered =
      std::span(maxima_).first(mine.size() * static_cast<std::size_t>(group_.world_size()));
  COPSE_RETURN_IF_ERROR(group_.all_gather(std::as_bytes(mine), std::as_writable_bytes(gathered)));
  filter_.begin(logits, rows, gathered, threads_);
  for (const FilterStage stage : {FilterStage::top_k, FilterStage::top_p}) {
    for (int pass = 0; pass < filter_.passes() && filter_.pending(stage); ++pass) {
      COPSE_RETURN_IF_ERROR(group_.all_reduce_sum(filter_.histogram(stage, pass, threads_)));
      filter_.narrow(stage, pass);
    }
  }
  return filter_.thresholds();
}

Result<std::span<const TokenId>> Sampler::draw(std::span<const float> logits,
                                               std::span<const SampleRow> rows) {
  CHECK(rows.size() <= tokens_.size());
  const SampleLogits view = {logits, static_cast<int>(rows.size()), shard_.local, shard_.begin,
                             shard_.rows};
  COPSE_TRY(const std::span<const SampleThreshold> limits, thresholds(view, rows));
  const auto mine = std::span(mine_).first(rows.size());
  const auto all =
      std::span(all_).first(rows.size() * static_cast<std::size_t>(group_.world_size()));
  kernels::sample_local(view, rows, limits, mine, threads_);
  COPSE_RETURN_IF_ERROR(group_.all_gather(std::as_bytes(mine), std::as_writable_bytes(all)));
  const auto tokens = std::span(tokens_).first(rows.size());
  kernels::merge_choices(all, tokens);
  return std::span<const TokenId>(tokens);
}

}  // namespace copse
