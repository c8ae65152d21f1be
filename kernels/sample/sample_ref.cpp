#include <cmath>

#include "base/random.h"
#include "kernels/sample/sample_place.h"
#include "kernels/sample/sample_rows.h"

namespace copse::kernels {

SampleChoice draw_row_plain(const float* logits, int count, int vocabulary_begin,
                            const SampleRow& row, const SampleThreshold& threshold) {
  SampleChoice best;
  for (int i = 0; i < count; ++i) {
    if (!std::isfinite(logits[i])) return {0, sample_not_finite};
    const TokenId token = vocabulary_begin + i;
    if (is_masked(row, token)) continue;
    float score = logits[i];
    if (!row.greedy()) {
      const float scaled = logits[i] / row.temperature;
      if (row.filtered() && !passes(threshold, scaled, token)) continue;
      score = scaled +
              gumbel_noise(row.seed, row.choice, row.position, static_cast<std::uint32_t>(token));
    }
    const SampleChoice choice{score, token};
    if (best.token == sample_none || better_choice(choice, best)) best = choice;
  }
  return best;
}

void sample_local_ref(const SampleLogits& logits, std::span<const SampleRow> rows,
                      std::span<const SampleThreshold> thresholds,
                      std::span<SampleChoice> choices) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* values = logits.values.data() + static_cast<std::ptrdiff_t>(r) * logits.stride;
    choices[r] = draw_row_plain(values, logits.vocabulary_rows, logits.vocabulary_begin, rows[r],
                                rows[r].filtered() ? thresholds[r] : SampleThreshold{});
  }
}

void merge_choices(std::span<const SampleChoice> choices, std::span<TokenId> tokens) {
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    SampleChoice best;
    bool finite = true;
    for (std::size_t i = row; i < choices.size(); i += tokens.size()) {
      finite = finite && choices[i].token != sample_not_finite;
      if (choices[i].token == sample_none) continue;
      if (best.token == sample_none || better_choice(choices[i], best)) best = choices[i];
    }
    tokens[row] = finite && best.token != sample_none ? best.token : sample_not_finite;
  }
}

}  // namespace copse::kernels
