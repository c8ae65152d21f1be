#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/common/exp.h"
#include "kernels/common/tree_sum.h"
#include "kernels/moe_route/moe_route.h"

namespace copse::kernels::ref {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

std::vector<float> scores_of(const float* logits, const RouteSpec& spec) {
  std::vector<float> scores(logits, logits + spec.experts);
  if (spec.scoring == RouteScoring::sigmoid) {
    for (float& score : scores) score = 1.0f / (1.0f + exp_fixed(0.0f - score));
    return scores;
  }
  float largest = minus_infinity;
  for (const float score : scores) largest = score > largest ? score : largest;
  float partials[sum_partials] = {};
  for (std::size_t e = 0; e < scores.size(); ++e) {
    scores[e] = exp_fixed(scores[e] - largest);
    partials[e % sum_partials] += scores[e];
  }
  const float sum = tree_sum16(partials);
  for (float& score : scores) score /= sum;
  return scores;
}

// Index of the best value that is not taken yet, ties to the lower index, NaN last.
int best(const std::vector<float>& values, const std::vector<bool>& taken) {
  int found = -1;
  const auto rank = [&](int i) {
    const float value = values[static_cast<std::size_t>(i)];
    return std::isnan(value) ? minus_infinity : value;
  };
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    if (taken[static_cast<std::size_t>(i)]) continue;
    if (found < 0 || rank(i) > rank(found)) found = i;
  }
  return found;
}

std::vector<bool> best_of(const std::vector<float>& values, int count) {
  std::vector<bool> taken(values.size());
  for (int i = 0; i < count; ++i) taken[static_cast<std::size_t>(best(values, taken))] = true;
  return taken;
}

void mask_groups(std::vector<float>& choice, const RouteSpec& spec) {
  const int size = spec.experts / spec.groups;
  std::vector<float> ranks;
  for (int g = 0; g < spec.groups; ++g) {
    std::vector<float> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    for (float& value : group) value = std::isnan(value) ? minus_infinity : value;
    std::sort(group.begin(), group.end(), std::greater<>());
    const bool two = spec.method == RouteMethod::noaux_tc && size > 1;
    ranks.push_back(two ? group[0] + group[1] : group[0]);
  }
  const std::vector<bool> kept = best_of(ranks, spec.groups_per_token);
  for (int e = 0; e < spec.experts; ++e) {
    if (!kept[static_cast<std::size_t>(e / size)]) {
      choice[static_cast<std::size_t>(e)] = spec.masked_choice;
    }
  }
}

}  // namespace

void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights) {
  CHECK(logits.columns == spec.experts && spec.experts % spec.groups == 0);
  const auto k = static_cast<std::size_t>(spec.experts_per_token);
  CHECK(ids.size() == static_cast<std::size_t>(logits.rows) * k && weights.size() == ids.size());
  for (int r = 0; r < logits.rows; ++r) {
    const std::vector<float> scores = scores_of(logits.row(r), spec);
    std::vector<float> choice = scores;
    for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
    if (spec.method != RouteMethod::greedy && spec.groups_per_token < spec.groups) {
      mask_groups(choice, spec);
    }
    const std::vector<bool> chosen = best_of(choice, spec.experts_per_token);
    std::size_t at = static_cast<std::size_t>(r) * k;
    const std::size_t first = at;
    float sum = 0;
    for (std::size_t e = 0; e < chosen.size(); ++e) {
      if (!chosen[e]) continue;
      ids[at] = static_cast<std::int32_t>(e);
      weights[at++] = scores[e];
      sum += scores[e];
    }
    for (std::size_t i = first; i < at; ++i) {
      if (spec.normalize) weights[i] /= sum + 1e-20f;
      weights[i] *= spec.scale;
    }
  }
}

}  // namespace copse::kernels::ref
