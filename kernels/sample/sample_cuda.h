#pragma once
// sample.h and sample_filter.h on a GPU: the same choices as on the CPU, bit for bit, since noise,
// exponentials and filters are the same operations (base/noise.h, common/exp.h,
// sample_filter_row.h). What a row asks for is read from its sequence's slot.
//
//   filters, if any slot of the batch has one (the host knows from its plan):
//     sample_filter_maxima                          all_gather of maxima
//     for (step = 0; step < sample_filter_steps(call, use); ++step)
//       sample_filter_step                          all_reduce_sum of sample_filter_bins
//     sample_filter_finish
//   sample_local                                    all_gather of choices
//   sample_merge
//
// A rank's shard is cut into sample_slices(), each the work of one block. Rows whose position or
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

// Of one rank, the same on every rank: enough blocks for the GPU, and none with little to do.
constexpr int sample_slices(const SampleCall& call) {
  constexpr int blocks = 528;       // of all rows
  constexpr int worthwhile = 1024;  // tokens
  constexpr int lists_max = 128;    // of a row, over all ranks
  const int local = (call.vocabulary + call.world_size - 1) / call.world_size;
  int slices = (local + worthwhile - 1) / worthwhile;
  if (slices > lists_max / call.world_size) slices = lists_max / call.world_size;
  if (slices * call.rows > blocks) slices = blocks / call.rows;
  return slices > 1 ? slices : 1;
}

// thresholds: [rows], of sample_filter_finish; null if no slot filters. choices: [rows][slices].
Status sample_local(const SampleCall& call, const SampleThreshold* thresholds,
                    SampleChoice* choices, Stream stream);
// choices: [world_size][rows][slices]; tokens: [rows]. sample_not_finite as on the CPU.
Status sample_merge(const SampleCall& call, const SampleChoice* choices, TokenId* tokens,
                    Stream stream);

// Which thresholds some slot of the batch asks for: others cost no steps. min-p needs none.
struct SampleFilterUse {
  bool top_k = true;
  bool top_p = true;
};
// Device memory of a filter: steps read one half and write the other.
struct SampleFilterArrays {
  FilterRow* states = nullptr;    // [2][rows]
  std::uint64_t* bins = nullptr;  // [3][rows][sample_bins]
};
constexpr int sample_filter_steps(const SampleCall& call, const SampleFilterUse& use) {
  const int stages = (use.top_k ? 1 : 0) + (use.top_p ? 1 : 0);
  return stages * sample_filter_passes(sample_id_bits(call.vocabulary));
}
// What the ranks add after a step, [rows][sample_bins].
inline std::uint64_t* sample_filter_bins(const SampleCall& call, const SampleFilterArrays& arrays,
                                         int step) {
  return arrays.bins + static_cast<std::ptrdiff_t>(step % 3) * call.rows * sample_bins;
}
// maxima: [rows][slices]. Clears the bins of step 0.
Status sample_filter_maxima(const SampleCall& call, const SampleFilterArrays& arrays, float* maxima,
                            Stream stream);
// maxima: [world_size][rows][slices].
Status sample_filter_step(const SampleCall& call, const SampleFilterUse& use, int step,
                          const float* maxima, const SampleFilterArrays& arrays, Stream stream);
// thresholds: [rows], written for rows that filter.
Status sample_filter_finish(const SampleCall& call, const SampleFilterUse& use, const float* maxima,
                            const SampleFilterArrays& arrays, SampleThreshold* thresholds,
                            Stream stream);

}  // namespace copse::kernels::cuda
