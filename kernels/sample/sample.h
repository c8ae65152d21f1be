#pragma once
// Steps 6-7: the token that follows each row of logits, drawn by counter-based Gumbel noise over a
// vocabulary that is sharded over ranks, without gathering a row. Order: mask, divide by the
// temperature, top-k, top-p, min-p, add noise, argmax; ties to the lower id. (Penalties and bias
// belong before the division; no request carries them yet.) The noise is a pure function of (seed,
// choice, position of the token drawn, token), so every drafting mode and number of ranks draws the
// same token.
//
//   sample_local   this rank's best (score, id) of each row
//   (one all_gather of the choices of all rows)
//   merge_choices  the token of each row, the same on every rank
// Rows that filter (top-k, top-p, min-p) first get their thresholds: sample_filter.h.
//
// For every device: local is one launch over rows (rows * vocabulary_local * 4 bytes read, noise
// computed only where it can win), merge another; nothing is read by the host.
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernels/common/thread_pool.h"
#include "kernels/sample/sample_choice.h"

namespace copse::kernels {

struct SampleRow {
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::uint64_t position = 0;       // absolute, of the token being drawn
  std::span<const TokenId> masked;  // never drawn: end tokens before min_tokens

  bool greedy() const { return temperature < sample_temperature_min; }
  bool filtered() const { return !greedy() && (top_k > 0 || top_p < 1 || min_p > 0); }
};

// This rank's logits, [rows][stride].
struct SampleLogits {
  std::span<const float> values;
  int rows = 0;
  int stride = 0;
  int vocabulary_begin = 0;
  int vocabulary_rows = 0;  // real tokens; what follows in a row is padding and never read
};

// thresholds: [rows], read for filtered rows; may be empty if there are none. choices: [rows].
void sample_local(const SampleLogits& logits, std::span<const SampleRow> rows,
                  std::span<const SampleThreshold> thresholds, std::span<SampleChoice> choices,
                  ThreadPool& threads);
void sample_local_ref(const SampleLogits& logits, std::span<const SampleRow> rows,
                      std::span<const SampleThreshold> thresholds, std::span<SampleChoice> choices);

// choices: [world_size][tokens.size()]. A row that is not finite on any rank, or that nobody offers
// a token for, becomes sample_not_finite.
void merge_choices(std::span<const SampleChoice> choices, std::span<TokenId> tokens);

}  // namespace copse::kernels
