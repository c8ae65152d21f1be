#include <algorithm>
#include <vector>

#include "kernels/common/tree_sum.h"
#include "kernels/topk_logprob/topk_leaves.h"

namespace copse::kernels {
namespace {

TopkWord leaf_of(const float* row, LeafRange range) {
  float largest = minus_infinity;
  for (int i = range.begin; i < range.end; ++i) largest = std::max(largest, row[i]);
  if (largest == minus_infinity) return leaf_word(largest, 0);
  float partials[sum_partials] = {};
  for (int i = range.begin; i < range.end; ++i) {
    partials[(i - range.begin) % sum_partials] += exp_fixed(row[i] - largest);
  }
  return leaf_word(largest, tree_sum16(partials));
}

}  // namespace

void topk_logprob_local_ref(const TopkShape& shape, std::span<const float> logits,
                            std::span<TopkWord> part) {
  TopkWord* out = part.data();
  for (int r = 0; r < shape.rows; ++r) {
    const float* row = logits.data() + static_cast<std::ptrdiff_t>(r) * shape.stride;
    for (int leaf = 0; leaf < shape.leaves(); ++leaf) {
      *out++ = leaf_of(row, leaf_range(shape, leaf));
    }
    std::vector<TopkWord> all;
    for (int i = 0; i < shape.vocabulary_rows; ++i) {
      if (row[i] > minus_infinity) {
        all.push_back({row[i], static_cast<std::uint32_t>(shape.vocabulary_begin + i)});
      }
    }
    std::ranges::sort(all, better_candidate);
    all.resize(static_cast<std::size_t>(shape.k), TopkWord{minus_infinity, 0});
    out = std::ranges::copy(all, out).out;
  }
}

}  // namespace copse::kernels
