#pragma once
// One row's search for its top-k and top-p thresholds: what is known, and how a histogram of the
// next digit narrows it. The same on host and GPU.
#include <cstdint>

#include "base/host_device.h"
#include "kernels/sample/sample_place.h"

namespace copse::kernels {

enum class FilterStage : std::uint8_t { top_k, top_p };

inline constexpr int sample_bins = 256;

// Digits of 8 bits: 4 of the ordered logit, then those of the id.
constexpr int sample_id_bits(int vocabulary) {
  int bits = 8;
  while ((1 << bits) < vocabulary) bits += 8;
  return bits;
}
constexpr int sample_filter_passes(int id_bits) {
  return 4 + id_bits / 8;
}

struct FilterRow {
  bool finite = true;
  bool open[2] = {};         // stages whose threshold is not known yet
  std::uint64_t target = 0;  // tokens or mass still to take inside the prefix
  std::uint64_t prefix = 0;  // digits found so far
  std::uint64_t top_k = 0;   // place threshold of the first stage
  float top_p = 1;
  SampleThreshold threshold;
};

COPSE_HOST_DEVICE inline int filter_shift(int id_bits, int pass) {
  return 32 + id_bits - 8 * (pass + 1);
}

// largest: scaled logit over all ranks. A row that is not finite has nothing to search for.
COPSE_HOST_DEVICE inline FilterRow start_filter_row(std::int32_t top_k, float top_p, float min_p,
                                                    int id_bits, bool finite, float largest) {
  FilterRow row;
  row.finite = finite;
  row.open[0] = finite && top_k > 0;
  row.open[1] = finite && top_p < 1;
  row.top_p = top_p;
  row.target = static_cast<std::uint64_t>(top_k > 0 ? top_k : 0);
  row.threshold.id_bits = id_bits;
  row.threshold.largest = largest;
  if (min_p > 0) {
    row.threshold.mass = static_cast<std::uint64_t>(
        std::ceil(multiply(min_p, static_cast<double>(sample_mass(0, 0)))));
  }
  return row;
}

// Whether a place is counted in a pass of a stage, and in which bin.
COPSE_HOST_DEVICE inline bool filter_counts(const FilterRow& row, int shift, std::uint64_t place) {
  return place >= row.top_k && (place >> (shift + 8)) == row.prefix;
}
COPSE_HOST_DEVICE inline int filter_bin(int shift, std::uint64_t place) {
  return static_cast<int>((place >> shift) & 0xFF);
}

// ceil(total * p), at least 1: what a nucleus must reach. p in 32 bits of fraction.
COPSE_HOST_DEVICE inline std::uint64_t share_of(std::uint64_t total, float p) {
  const auto fraction = static_cast<std::uint64_t>(multiply(p, 0x1p32));
  __extension__ using Wide = unsigned __int128;
  const Wide share = (static_cast<Wide>(total) * fraction + 0xFFFFFFFFu) >> 32;
  return share > 1 ? static_cast<std::uint64_t>(share) : 1;
}

COPSE_HOST_DEVICE inline void finish_filter_stage(FilterRow& row, FilterStage stage,
                                                  std::uint64_t place) {
  row.open[static_cast<int>(stage)] = false;
  row.prefix = 0;
  if (place > row.threshold.place) row.threshold.place = place;
  if (stage == FilterStage::top_k) row.top_k = place;
}

// Before the first histogram of a stage is searched: total is the sum of its bins. False if that
// settles the stage.
COPSE_HOST_DEVICE inline bool start_filter_stage(FilterRow& row, FilterStage stage,
                                                 std::uint64_t total) {
  if (stage == FilterStage::top_p) row.target = share_of(total, row.top_p);
  if (total > row.target) return true;
  finish_filter_stage(row, stage, stage == FilterStage::top_k ? 0 : row.top_k);
  return false;
}

// digit: the highest bin that is still reached from above, or 0; bin: its content; above: the sum
// of the bins above it.
COPSE_HOST_DEVICE inline void take_filter_digit(FilterRow& row, FilterStage stage, int pass,
                                                int digit, std::uint64_t bin, std::uint64_t above) {
  row.target -= above;
  row.prefix = (row.prefix << 8) | static_cast<std::uint64_t>(digit);
  const int shift = filter_shift(row.threshold.id_bits, pass);
  // A bin that is needed whole, or the last digit, settles the threshold.
  if (bin == row.target || shift == 0) finish_filter_stage(row, stage, row.prefix << shift);
}

// bins: [sample_bins] of this row, added over all ranks; the stage is open.
inline void narrow_filter_row(FilterRow& row, FilterStage stage, int pass,
                              const std::uint64_t* bins) {
  if (pass == 0) {
    std::uint64_t total = 0;
    for (int i = 0; i < sample_bins; ++i) total += bins[i];
    if (!start_filter_stage(row, stage, total)) return;
  }
  int digit = sample_bins - 1;
  std::uint64_t above = 0;
  while (above + bins[digit] < row.target && digit > 0) above += bins[digit--];
  take_filter_digit(row, stage, pass, digit, bins[digit], above);
}

}  // namespace copse::kernels
