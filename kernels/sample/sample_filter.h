#pragma once
// Thresholds of top-k, top-p and min-p over a sharded vocabulary, exactly: masses are integers, so
// the order of adding does not matter, and a threshold is found digit by digit from histograms that
// the ranks add. Top-k keeps the k best places (larger logit, then lower id); top-p then keeps the
// shortest best-first run whose mass reaches p of what top-k left; min-p keeps tokens of at least
// min_p of the largest token's mass.
//
//   SampleFilter filter(rows_max, local_max, vocabulary);
//   filter.local_maxima(logits, rows, mine, threads);     all_gather mine
//   filter.begin(logits, rows, gathered, threads);
//   for (stage : {top_k, top_p})
//     for (pass = 0; pass < filter.passes() && filter.pending(stage); ++pass)
//       counts = filter.histogram(stage, pass); all_reduce_sum counts; filter.narrow(stage, pass);
//   filter.thresholds() -> sample_local
// pending() depends on added counts alone: all ranks leave the loop at the same pass.
//
// For every device: the passes are a fixed number of launches (pending() only saves passes where
// the host may look), workspace rows_max * local_max * 12 bytes, histograms rows_max * 2 KiB.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/sample/sample.h"
#include "kernels/sample/sample_filter_row.h"

namespace copse::kernels {

class SampleFilter {
 public:
  // rows_max filtered rows of local_max logits; allocates all there is.
  SampleFilter(int rows_max, int local_max, int vocabulary);

  static bool needed(std::span<const SampleRow> rows);

  // The largest scaled logit of each filtered row of this shard; NaN if the row is not finite.
  // Returns the filtered rows' part of an inner buffer, [filtered rows].
  std::span<const float> local_maxima(const SampleLogits& logits, std::span<const SampleRow> rows);
  // gathered: [world_size][filtered rows].
  void begin(const SampleLogits& logits, std::span<const SampleRow> rows,
             std::span<const float> gathered, ThreadPool& threads);

  int passes() const { return sample_filter_passes(id_bits_); }
  bool pending(FilterStage stage) const;
  std::span<std::uint64_t> histogram(FilterStage stage, int pass, ThreadPool& threads);
  void narrow(FilterStage stage, int pass);

  // [rows], as sample_local takes them.
  std::span<const SampleThreshold> thresholds();

 private:
  struct RowState : FilterRow {
    int row = 0;  // of the batch
  };
  void count_row(FilterStage stage, int pass, std::size_t index);

  int id_bits_;
  int local_max_;
  int local_ = 0;  // tokens of this shard
  int rows_ = 0;   // of the batch
  int begin_ = 0;
  std::vector<RowState> states_;  // filtered rows
  std::vector<float> maxima_;
  // Not cleared: pages that no filtered row needs are never touched.
  std::unique_ptr<std::uint32_t[]> ordered_;  // [filtered rows][local_max]
  std::unique_ptr<std::uint64_t[]>
      masses_;                       // likewise; 0 for masked tokens, whose bits are 0 as well
  std::vector<std::uint64_t> bins_;  // [filtered rows][256]
  std::vector<SampleThreshold> thresholds_;
};

}  // namespace copse::kernels
