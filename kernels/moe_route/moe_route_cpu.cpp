#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe_route/moe_route_cpu.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <limits>

#include "kernels/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// values[0 .. padded) hold logits, then padding; scores replace them. padded is a multiple of 16.
void sigmoid_scores(float* values, int padded) {
  const Lanes one = broadcast(1.0f);
  for (int i = 0; i < padded; i += 16) {
    store(div(one, add(one, exp(sub(zero(), load(values + i))))), values + i);
  }
}

// Padding must be -infinity: its exponential adds zero.
void softmax_scores(float* values, int padded) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < padded; ++i) largest = values[i] > largest ? values[i] : largest;
  Lanes sums = zero();
  for (int i = 0; i < padded; i += 16) {
    const Lanes weight = exp(sub(load(values + i), broadcast(largest)));
    sums = add(sums, weight);
    store(weight, values + i);
  }
  const Lanes sum = broadcast(tree_sum(sums));
  for (int i = 0; i < padded; i += 16) store(div(load(values + i), sum), values + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"
#include "base/limits.h"
#include "kernels/moe_route/moe_route.h"

namespace copse::kernels {
namespace {

HWY_EXPORT(sigmoid_scores);
HWY_EXPORT(softmax_scores);

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr int grain_rows = 16;  // a few microseconds

// The best `count` of values that were offered in ascending order of index: sorted by value, equal
// values by index, since a later equal value does not pass an earlier one.
template <int kMax>
class Best {
 public:
  explicit Best(int count) : count_(count) {}
  void offer(float value, int index) {
    if (held_ == count_ && !(value > values_[held_ - 1])) return;
    int at = held_ < count_ ? held_++ : held_ - 1;
    for (; at > 0 && value > values_[at - 1]; --at) {
      values_[at] = values_[at - 1];
      indices_[at] = indices_[at - 1];
    }
    values_[at] = value;
    indices_[at] = index;
  }
  int held() const { return held_; }
  float value(int i) const { return values_[i]; }
  int* begin() { return indices_; }
  int* end() { return indices_ + held_; }

 private:
  int count_;
  int held_ = 0;
  float values_[kMax] = {};
  int indices_[kMax] = {};
};

float rank(float choice) {
  return choice == choice ? choice : minus_infinity;
}

void mask_groups(float* choice, const RouteSpec& spec) {
  const int size = spec.experts / spec.groups;
  const int counted = spec.method == RouteMethod::noaux_tc && size > 1 ? 2 : 1;
  Best<limits::experts> groups(spec.groups_per_token);
  for (int g = 0; g < spec.groups; ++g) {
    Best<2> best(counted);
    for (int e = g * size; e < (g + 1) * size; ++e) best.offer(rank(choice[e]), e);
    groups.offer(rank(counted == 2 ? best.value(0) + best.value(1) : best.value(0)), g);
  }
  bool kept[limits::experts] = {};
  for (const int g : groups) kept[g] = true;
  for (int e = 0; e < spec.experts; ++e) {
    if (!kept[e / size]) choice[e] = spec.masked_choice;
  }
}

void route_row(const float* logits, std::span<const float> bias, const RouteSpec& spec,
               std::int32_t* ids, float* weights) {
  const int padded = (spec.experts + 15) / 16 * 16;
  float scores[limits::experts + 16];
  float choice[limits::experts];
  std::copy_n(logits, spec.experts, scores);
  std::fill(scores + spec.experts, scores + padded, minus_infinity);
  if (spec.scoring == RouteScoring::sigmoid) {
    HWY_DYNAMIC_DISPATCH(sigmoid_scores)(scores, padded);
  } else {
    HWY_DYNAMIC_DISPATCH(softmax_scores)(scores, padded);
  }
  std::copy_n(scores, spec.experts, choice);
  for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  if (spec.method != RouteMethod::greedy && spec.groups_per_token < spec.groups) {
    mask_groups(choice, spec);
  }
  Best<limits::experts_per_token> best(spec.experts_per_token);
  for (int e = 0; e < spec.experts; ++e) best.offer(rank(choice[e]), e);
  std::sort(best.begin(), best.end());
  float sum = 0;
  for (const int e : best) sum += scores[e];
  for (int i = 0; i < best.held(); ++i) {
    const int e = best.begin()[i];
    const float weight = spec.normalize ? scores[e] / (sum + 1e-20f) : scores[e];
    ids[i] = e;
    weights[i] = weight * spec.scale;
  }
}

}  // namespace

void moe_route(ConstMatrix logits, std::span<const float> bias, const RouteSpec& spec,
               std::span<std::int32_t> ids, std::span<float> weights, ThreadPool& pool) {
  CHECK(logits.columns == spec.experts && spec.experts <= limits::experts);
  CHECK(spec.experts_per_token > 0 && spec.experts_per_token <= limits::experts_per_token);
  CHECK(spec.experts_per_token <= spec.experts && spec.groups > 0);
  CHECK(spec.experts % spec.groups == 0 && spec.groups_per_token > 0);
  CHECK(bias.empty() || static_cast<int>(bias.size()) == spec.experts);
  const auto k = static_cast<std::size_t>(spec.experts_per_token);
  CHECK(ids.size() == static_cast<std::size_t>(logits.rows) * k && weights.size() == ids.size());
  pool.parallel_for(0, logits.rows, grain_rows, [&](int first, int last) {
    for (int r = first; r < last; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * k;
      route_row(logits.row(r), bias, spec, ids.data() + at, weights.data() + at);
    }
  });
}

std::uint64_t moe_route_bytes_moved(int rows, const RouteSpec& spec) {
  const auto experts = static_cast<std::uint64_t>(spec.experts);
  const auto chosen = static_cast<std::uint64_t>(spec.experts_per_token);
  return sizeof(float) * (static_cast<std::uint64_t>(rows) * (experts + 2 * chosen) + experts);
}

}  // namespace copse::kernels
#endif
