#include "kernels/sample/sample_filter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_rows.h"

namespace copse::kernels {
namespace {

constexpr std::size_t bin_count = sample_bins;

std::size_t index_of(FilterStage stage) {
  return stage == FilterStage::top_k ? 0 : 1;
}

}  // namespace

SampleFilter::SampleFilter(int rows_max, int local_max, int vocabulary)
    : id_bits_(sample_id_bits(vocabulary)), local_max_(local_max) {
  const auto rows = static_cast<std::size_t>(rows_max);
  const std::size_t tokens = rows * static_cast<std::size_t>(local_max);
  states_.reserve(rows);
  maxima_.resize(rows);
  ordered_ = std::make_unique_for_overwrite<std::uint32_t[]>(tokens);
  masses_ = std::make_unique_for_overwrite<std::uint64_t[]>(tokens);
  bins_.resize(rows * bin_count);
  thresholds_.resize(rows);
}

bool SampleFilter::needed(std::span<const SampleRow> rows) {
  return std::ranges::any_of(rows, [](const SampleRow& row) { return row.filtered(); });
}

std::span<const float> SampleFilter::local_maxima(const SampleLogits& logits,
                                                  std::span<const SampleRow> rows) {
  CHECK(rows.size() <= thresholds_.size() && logits.vocabulary_rows <= local_max_);
  states_.clear();
  rows_ = static_cast<int>(rows.size());
  local_ = logits.vocabulary_rows;
  begin_ = logits.vocabulary_begin;
  for (int r = 0; r < rows_; ++r) {
    const SampleRow& row = rows[static_cast<std::size_t>(r)];
    thresholds_[static_cast<std::size_t>(r)] = {0, 0, 0, id_bits_};
    if (!row.filtered()) continue;
    const float* values = logits.values.data() + static_cast<std::ptrdiff_t>(r) * logits.stride;
    float largest = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (int i = 0; i < local_; ++i) {
      finite = finite && std::isfinite(values[i]);
      if (!is_masked(row, begin_ + i)) largest = std::max(largest, values[i] / row.temperature);
    }
    maxima_[states_.size()] = finite ? largest : std::numeric_limits<float>::quiet_NaN();
    RowState state;
    state.row = r;
    states_.push_back(state);
  }
  return std::span(maxima_).first(states_.size());
}

void SampleFilter::begin(const SampleLogits& logits, std::span<const SampleRow> rows,
                         std::span<const float> gathered, ThreadPool& threads) {
  const std::size_t count = states_.size();
  CHECK(count > 0 && gathered.size() % count == 0);
  for (std::size_t s = 0; s < count; ++s) {
    RowState& state = states_[s];
    float largest = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (std::size_t i = s; i < gathered.size(); i += count) {
      finite = finite && !std::isnan(gathered[i]);
      largest = std::max(largest, gathered[i]);
    }
    finite = finite && std::isfinite(largest);
    const SampleRow& row = rows[static_cast<std::size_t>(state.row)];
    static_cast<FilterRow&>(state) =
        start_filter_row(row.top_k, row.top_p, row.min_p, id_bits_, finite, largest);
  }
  threads.parallel_for(0, static_cast<int>(count), 1, [&](int first, int last) {
    for (int s = first; s < last; ++s) {
      const auto i = static_cast<std::size_t>(s);
      const RowState& state = states_[i];
      const SampleRow& row = rows[static_cast<std::size_t>(state.row)];
      const std::size_t offset = i * static_cast<std::size_t>(local_max_);
      const float* values =
          logits.values.data() + static_cast<std::ptrdiff_t>(state.row) * logits.stride;
      if (!state.finite) continue;
      place_row(values, local_, row.temperature, state.threshold.largest, ordered_.get() + offset,
                masses_.get() + offset);
      for (const TokenId token : row.masked) {
        if (token < begin_ || token >= begin_ + local_) continue;
        ordered_[offset + static_cast<std::size_t>(token - begin_)] = 0;
        masses_[offset + static_cast<std::size_t>(token - begin_)] = 0;
      }
    }
  });
}

bool SampleFilter::pending(FilterStage stage) const {
  return std::ranges::any_of(states_,
                             [&](const RowState& state) { return state.open[index_of(stage)]; });
}

void SampleFilter::count_row(FilterStage stage, int pass, std::size_t index) {
  const RowState& state = states_[index];
  const auto bins = std::span(bins_).subspan(index * bin_count, bin_count);
  std::ranges::fill(bins, 0u);
  if (!state.open[index_of(stage)]) return;
  const std::size_t offset = index * static_cast<std::size_t>(local_max_);
  const int shift = filter_shift(id_bits_, pass);
  const std::uint64_t ids = (std::uint64_t{1} << id_bits_) - 1;
  for (int i = 0; i < local_; ++i) {
    const std::uint32_t ordered = ordered_[offset + static_cast<std::size_t>(i)];
    if (ordered == 0) continue;
    const std::uint64_t place = (static_cast<std::uint64_t>(ordered) << id_bits_) |
                                (ids - static_cast<std::uint64_t>(begin_ + i));
    if (!filter_counts(state, shift, place)) continue;
    const std::uint64_t weight =
        stage == FilterStage::top_k ? 1 : masses_[offset + static_cast<std::size_t>(i)];
    bins[static_cast<std::size_t>(filter_bin(shift, place))] += weight;
  }
}

std::span<std::uint64_t> SampleFilter::histogram(FilterStage stage, int pass, ThreadPool& threads) {
  threads.parallel_for(0, static_cast<int>(states_.size()), 1, [&](int first, int last) {
    for (int s = first; s < last; ++s) count_row(stage, pass, static_cast<std::size_t>(s));
  });
  return std::span(bins_).first(states_.size() * bin_count);
}

void SampleFilter::narrow(FilterStage stage, int pass) {
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (!states_[s].open[index_of(stage)]) continue;
    narrow_filter_row(states_[s], stage, pass, bins_.data() + s * bin_count);
  }
}

std::span<const SampleThreshold> SampleFilter::thresholds() {
  for (const RowState& state : states_) {
    thresholds_[static_cast<std::size_t>(state.row)] = state.threshold;
  }
  return std::span(thresholds_).first(static_cast<std::size_t>(rows_));
}

}  // namespace copse::kernels
