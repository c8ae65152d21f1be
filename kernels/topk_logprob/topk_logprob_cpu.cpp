#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/topk_logprob/topk_logprob_cpu.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/common/lanes-inl.h"
#include "kernels/topk_logprob/topk_leaves.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sixteen values from `from`, what lies at or past `end` as -infinity.
HWY_INLINE Lanes load_tail(const float* row, int from, int end) {
  if (from + 16 <= end) return load(row + from);
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = from + i < end ? row[from + i] : minus_infinity;
  return load(values);
}

TopkWord leaf_of(const float* row, LeafRange range) {
  Lanes largest = broadcast(minus_infinity);
  for (int i = range.begin; i < range.end; i += 16) {
    largest = max(largest, load_tail(row, i, range.end));
  }
  float values[16];
  store(largest, values);
  const float top = *std::max_element(values, values + 16);
  if (top == minus_infinity) return leaf_word(top, 0);
  Lanes sum = zero();
  const Lanes offset = broadcast(top);
  for (int i = range.begin; i < range.end; i += 16) {
    sum = add(sum, exp(sub(load_tail(row, i, range.end), offset)));
  }
  return leaf_word(top, tree_sum(sum));
}

// The k best seen so far, unsorted behind a threshold that only rises: most of a row is skipped
// sixteen at a time.
class Selection {
 public:
  explicit Selection(int k) : k_(k) {}

  float threshold() const { return threshold_; }
  void add(float value, std::uint32_t token) {
    kept_[count_++] = {value, token};
    if (count_ == capacity) shrink();
  }
  void write(TopkWord* out) {
    if (count_ > k_) shrink();
    std::sort(kept_, kept_ + count_, better_candidate);
    for (int i = 0; i < k_; ++i) out[i] = i < count_ ? kept_[i] : TopkWord{minus_infinity, 0};
  }

 private:
  static constexpr int capacity = 4 * limits::tree_top_k;

  // Tokens come in ascending order, so one that equals the threshold later on loses the tie.
  void shrink() {
    std::nth_element(kept_, kept_ + k_ - 1, kept_ + count_, better_candidate);
    count_ = k_;
    threshold_ = kept_[k_ - 1].value;
  }

  int k_;
  int count_ = 0;
  float threshold_ = minus_infinity;
  TopkWord kept_[capacity];
};

void select(const TopkShape& shape, const float* row, TopkWord* out) {
  const FloatTag d;
  Selection selection(shape.k);
  for (int i = 0; i < shape.vocabulary_rows; i += 16) {
    const Lanes values = load_tail(row, i, shape.vocabulary_rows);
    const Vector threshold = hn::Set(d, selection.threshold());
    bool any = false;
    for (int part = 0; part < parts; ++part) {
      any = any || !hn::AllFalse(d, hn::Gt(values.part[part], threshold));
    }
    if (!any) continue;
    const int end = std::min(i + 16, shape.vocabulary_rows);
    for (int j = i; j < end; ++j) {
      if (row[j] > selection.threshold()) {
        selection.add(row[j], static_cast<std::uint32_t>(shape.vocabulary_begin + j));
      }
    }
  }
  selection.write(out);
}

void local_rows(const TopkShape& shape, const float* logits, TopkWord* part, int first, int last) {
  const int words = shape.leaves() + shape.k;
  for (int r = first; r < last; ++r) {
    const float* row = logits + static_cast<std::ptrdiff_t>(r) * shape.stride;
    TopkWord* out = part + static_cast<std::ptrdiff_t>(r) * words;
    for (int leaf = 0; leaf < shape.leaves(); ++leaf) {
      out[leaf] = leaf_of(row, leaf_range(shape, leaf));
    }
    select(shape, row, out + shape.leaves());
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace copse::kernels {

HWY_EXPORT(local_rows);

void topk_logprob_local(const TopkShape& shape, std::span<const float> logits,
                        std::span<TopkWord> part, ThreadPool& threads) {
  CHECK(shape.k >= 1 && shape.k <= limits::tree_top_k);
  CHECK(shape.stride >= shape.vocabulary_rows);
  CHECK(logits.size() >=
        static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.stride));
  CHECK(part.size() >= shape.part_words());
  threads.parallel_for(0, shape.rows, 4, [&](int first, int last) {
    HWY_DYNAMIC_DISPATCH(local_rows)(shape, logits.data(), part.data(), first, last);
  });
}

}  // namespace copse::kernels
#endif
