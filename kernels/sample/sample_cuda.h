#pragma once
// sample.h and sample_filter.h on a GPU: the same choices as on the CPU, bit for bit, since noise,
// exponentials and filters are the same operations (base/noise.h, common/exp.h,
// sample_filter_row.h). What a row asks for is read from its sequence's slot.
//
//   filters, if any slot of the batch has one (the host knows from its plan):
//     sample_filter_maxima                          all_gather of maxima
//     for (step = 0; step < sample_filter_steps(call); ++step)
//       sample_filter_step                          all_reduce_sum of bins
//     sample_filter_finish
//   sample_local                                    all_gather of choices
//   sample_merge
//
// A rank's shard is cut into sample_slices() of which each offers a choice. Rows whose position or
// entry_slot is -1 are padding: their logits are not read, their token is 0.
// sample_local reads rows * vocabulary_rows * 4 bytes once; each step of the filter as much for
// rows whose threshold is still open.
#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/round_state/round_state.h"
#include "kernels/sample/sample_choice.h"
#include "kernels/sample/sample_filter_row.h"

namespace copse::kernels::cuda {

struct SampleCall {
  const float* logits = nullptr;  // [rows][stride], 16-byte aligned
  int rows = 0;
  int stride = 0;
  int vocabulary = 0;  // of all ranks
  int world_size = 1;
  int vocabulary_begin = 0;  // of this rank's shard
  int vocabulary_rows = 0;   // real tokens of it

  int rows_per_sequence = 0;
  const std::int32_t* logit_rows = nullptr;     // [rows] packed row of each row of logits; null: r
  const std::int32_t* row_positions = nullptr;  // [packed rows]; the token drawn stands one behind
  const DeviceSlot* slots = nullptr;
  const std::int32_t* entry_slot = nullptr;  // [packed rows / rows_per_sequence]
};

constexpr int sample_slices(int world_size) {  // of one rank
  return world_size < limits::reduction_leaves ? limits::reduction_leaves / world_size : 1;
}

// thresholds: [rows], of sample_filter_finish; null if no slot filters. choices: [rows][slices].
Status sample_local(const SampleCall& call, const SampleThreshold* thresholds,
                    SampleChoice* choices, Stream stream);
// choices: [world_size][rows][slices]; tokens: [rows]. sample_not_finite as on the CPU.
Status sample_merge(int rows, int world_size, const SampleChoice* choices, TokenId* tokens,
                    Stream stream);

// Device arrays of a filter, one entry for each row of logits.
struct SampleFilterArrays {
  FilterRow* states = nullptr;    // [rows]
  std::uint64_t* bins = nullptr;  // [rows][sample_bins]; all zero for rows that need none
};
constexpr int sample_filter_steps(const SampleCall& call) {
  return 2 * sample_filter_passes(sample_id_bits(call.vocabulary));
}
// maxima: [rows]
Status sample_filter_maxima(const SampleCall& call, float* maxima, Stream stream);
// maxima: [world_size][rows], read by step 0; bins: added over the ranks before the next step.
Status sample_filter_step(const SampleCall& call, int step, const float* maxima,
                          const SampleFilterArrays& arrays, Stream stream);
Status sample_filter_finish(const SampleCall& call, const SampleFilterArrays& arrays,
                            SampleThreshold* thresholds, Stream stream);

}  // namespace copse::kernels::cuda
