#include "worker/cuda/sampler_cuda.h"

#include <algorithm>

namespace copse {

namespace cuda = kernels::cuda;

namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Of one rank: each slice of a row offers one, and has one largest logit.
std::size_t choices_of(const cuda::SampleCall& call) {
  return size(call.rows) * size(cuda::sample_slices(call));
}

}  // namespace

CudaSampler::CudaSampler(int rows_max, int vocabulary, const VocabularyShard& shard,
                         DeviceCollective& group)
    : rows_max_(rows_max), vocabulary_(vocabulary), shard_(shard), group_(group) {}

void CudaSampler::place(cuda::DeviceArena& arena) {
  const std::size_t rows = size(rows_max_);
  const std::size_t world = size(group_.world_size());
  // The most that any number of rows takes.
  std::size_t choices = 0;
  cuda::SampleCall call;
  call.vocabulary = vocabulary_;
  call.world_size = group_.world_size();
  for (call.rows = 1; call.rows <= rows_max_; ++call.rows) {
    choices = std::max(choices, choices_of(call));
  }
  arena.place("choices of this rank", choices, mine_);
  arena.place("choices of all ranks", choices * world, all_);
  arena.place("largest logits", choices, maxima_);
  arena.place("largest logits of all ranks", choices * world, all_maxima_);
  arena.place("sampling thresholds", rows, thresholds_);
  arena.place("filter states", 2 * rows, filter_.states);
  arena.place("filter bins", 3 * rows * kernels::sample_bins, filter_.bins);
}

// At one rank its own part is all there is.
Status CudaSampler::gather(const void* mine, void* all, std::size_t bytes, Stream stream) {
  return group_.world_size() == 1 ? Status() : group_.all_gather(mine, all, bytes, stream);
}

Status CudaSampler::draw(const Rows& rows, const cuda::RoundArrays& arrays, TokenId* tokens,
                         Stream stream) {
  CHECK(rows.rows <= rows_max_);
  cuda::SampleCall call;
  call.logits = rows.logits;
  call.rows = rows.rows;
  call.stride = shard_.local;
  call.vocabulary = vocabulary_;
  call.world_size = group_.world_size();
  call.vocabulary_begin = shard_.begin;
  call.vocabulary_rows = shard_.rows;
  call.rows_per_sequence = rows.rows_per_sequence;
  call.logit_rows = rows.logit_rows;
  call.row_positions = arrays.row_positions;
  call.slots = arrays.slots;
  call.entry_slot = arrays.entry_slot;
  if (rows.filtered) COPSE_RETURN_IF_ERROR(thresholds(call, stream));
  COPSE_RETURN_IF_ERROR(
      cuda::sample_local(call, rows.filtered ? thresholds_ : nullptr, mine_, stream));
  const std::size_t bytes = choices_of(call) * sizeof(kernels::SampleChoice);
  COPSE_RETURN_IF_ERROR(gather(mine_, all_, bytes, stream));
  return cuda::sample_merge(call, call.world_size == 1 ? mine_ : all_, tokens, stream);
}

Status CudaSampler::thresholds(const cuda::SampleCall& call, Stream stream) {
  constexpr cuda::SampleFilterUse use;  // a graph serves every combination
  COPSE_RETURN_IF_ERROR(cuda::sample_filter_maxima(call, filter_, maxima_, stream));
  COPSE_RETURN_IF_ERROR(gather(maxima_, all_maxima_, choices_of(call) * sizeof(float), stream));
  const float* maxima = call.world_size == 1 ? maxima_ : all_maxima_;
  for (int step = 0; step < cuda::sample_filter_steps(call, use); ++step) {
    COPSE_RETURN_IF_ERROR(cuda::sample_filter_step(call, use, step, maxima, filter_, stream));
    COPSE_RETURN_IF_ERROR(group_.all_reduce_sum(cuda::sample_filter_bins(call, filter_, step),
                                                size(call.rows) * kernels::sample_bins, stream));
  }
  return cuda::sample_filter_finish(call, use, maxima, filter_, thresholds_, stream);
}

}  // namespace copse
