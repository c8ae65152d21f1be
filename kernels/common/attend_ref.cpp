#include <cmath>

#include "base/check.h"
#include "kernels/common/attend.h"
#include "kernels/common/exp.h"
#include "kernels/common/tree_sum.h"

namespace copse::kernels::ref {
namespace {

float score(const float* q, const float* key, const AttendShape& shape) {
  float partials[sum_partials] = {};
  for (int i = 0; i < shape.key_dim; ++i) {
    float& partial = partials[i % sum_partials];
    partial = std::fma(q[i], key[i], partial);
  }
  return tree_sum16(partials) * shape.scale;
}

}  // namespace

void attend_block(AttendQuery& query, const float* const* keys, const float* const* values,
                  int tokens, const AttendShape& shape) {
  CHECK(tokens > 0 && tokens <= attend_block_tokens);
  float weights[attend_block_tokens];
  float largest = query.largest;
  for (int t = 0; t < tokens; ++t) {
    weights[t] = score(query.q, keys[t], shape);
    largest = weights[t] > largest ? weights[t] : largest;
  }
  float partials[sum_partials] = {};
  for (int t = 0; t < tokens; ++t) {
    weights[t] = exp_fixed(weights[t] - largest);
    partials[t % sum_partials] += weights[t];
  }
  const bool first = query.sum == 0;
  const float rescale = exp_fixed(query.largest - largest);
  query.sum = query.sum * rescale + tree_sum16(partials);
  query.largest = largest;
  for (int i = 0; i < shape.value_dim; ++i) {
    float sum = first ? 0.0f : query.out[i] * rescale;
    for (int t = 0; t < tokens; ++t) sum = std::fma(weights[t], values[t][i], sum);
    query.out[i] = sum;
  }
}

void attend_finish(AttendQuery& query, const AttendShape& shape) {
  const float inverse = 1.0f / query.sum;
  for (int i = 0; i < shape.value_dim; ++i) query.out[i] *= inverse;
}

}  // namespace copse::kernels::ref
