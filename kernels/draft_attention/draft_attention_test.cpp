#include "kernels/draft_attention/draft_attention.h"

#include <gtest/gtest.h>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"
#include "kernels/draft_attention/draft_rows.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Inputs;

struct Shape {
  int heads, kv_heads, dim, block, window;
};

// Memory of one call; everything that no row may read is poison.
class World {
 public:
  World(const Shape& shape, const std::vector<int>& lengths, Fill fill, float poison,
        std::uint64_t seed = 1) {
    call_.heads = shape.heads;
    call_.kv_heads = shape.kv_heads;
    call_.dim = shape.dim;
    call_.block = shape.block;
    call_.window = shape.window;
    call_.scale = 0.21f;
    Inputs values(fill, seed);
    const auto rows = lengths.size() * static_cast<std::size_t>(shape.block);
    const auto query = static_cast<std::size_t>(shape.heads * shape.dim);
    const auto token = static_cast<std::size_t>(shape.kv_heads * shape.dim);
    for (auto* buffer : {&q_, &k_, &v_}) {
      buffer->resize(rows * (buffer == &q_ ? query : token));
      for (float& value : *buffer) value = values.next() / (buffer == &q_ ? 8.0f : 1.0f);
    }
    out_.assign(rows * query + 16, poison);
    PageId pages = 2;  // never used
    for (const int length : lengths) pages += (length + 63) / 64;
    keys_.assign(static_cast<std::size_t>(pages) * 64 * token, poison);
    values_ = keys_;
    PageId next = pages - 1;
    for (const int length : lengths) {
      std::vector<PageId>& table = tables_.emplace_back();
      for (int p = 0; p < length; ++p) {
        if (p % 64 == 0) table.push_back(next--);
        // Tokens that the first row's window has passed stay poison: later rows see fewer.
        if (shape.window > 0 && p <= length - shape.window) continue;
        const std::size_t at = static_cast<std::size_t>(table.back() * 64 + p % 64) * token;
        for (std::size_t i = 0; i < token; ++i) {
          keys_[at + i] = values.next();
          values_[at + i] = values.next();
        }
      }
      contexts_.push_back({length, nullptr});
    }
  }

  DraftAttention& call() {
    for (std::size_t s = 0; s < contexts_.size(); ++s) contexts_[s].pages = tables_[s].data();
    call_.q = q_.data();
    call_.k = k_.data();
    call_.v = v_.data();
    call_.key_pages = keys_.data();
    call_.value_pages = values_.data();
    call_.out = out_.data();
    call_.sequences = contexts_;
    return call_;
  }
  std::vector<float>& out() { return out_; }

 private:
  DraftAttention call_;
  std::vector<DraftContext> contexts_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<float> q_, k_, v_, keys_, values_, out_;
};

class DraftAttentionTest : public ::testing::TestWithParam<Backend> {
 protected:
  void run(World& world) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::draft_attention(world.call());
    } else {
      draft_attention(world.call(), use.pool);
    }
  }

  // Float64, straight from the definition.
  void expect_close(const DraftAttention& call, int sequence, int row, int head) {
    const int length = call.sequences[static_cast<std::size_t>(sequence)].length;
    const int at = ((sequence * call.block + row) * call.heads + head) * call.dim;
    std::vector<DraftToken> tokens;
    for (int p = 0; p < length + call.block; ++p) {
      if (call.window > 0 && p < length && p <= length + row - call.window) continue;
      tokens.push_back(draft_token(call, sequence, p, head / (call.heads / call.kv_heads)));
    }
    std::vector<double> weights;
    double largest = -1e300, span = 0, sum = 0;
    for (const DraftToken& token : tokens) {
      double score = 0, magnitude = 0;
      for (int i = 0; i < call.dim; ++i) {
        const double term = static_cast<double>(call.q[at + i]) * token.key[i] * call.scale;
        score += term;
        magnitude += std::abs(term);
      }
      weights.push_back(score);
      largest = std::max(largest, score);
      span = std::max(span, magnitude);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (int i = 0; i < call.dim; ++i) {
      double value = 0, magnitude = 0;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        const double term = tokens[t].value[i];
        value += weights[t] / sum * term;
        // The last term: weights below exp_underflow count as zero.
        magnitude += (weights[t] / sum + 1e-30) * std::abs(term);
      }
      ASSERT_TRUE(within_tolerance(call.out[at + i], value, magnitude * (1 + span),
                                   call.dim / 8 + static_cast<int>(tokens.size())))
          << call.out[at + i] << " for " << value;
    }
  }
};

constexpr Shape shapes[] = {{8, 4, 32, 16, 0}, {1, 1, 32, 16, 0}, {6, 2, 24, 7, 0},
                            {4, 1, 20, 5, 40}, {2, 2, 5, 3, 2},   {8, 1, 128, 8, 100},
                            {2, 2, 16, 32, 0}};

TEST_P(DraftAttentionTest, AllShapesAndInputs) {
  for (const Shape& shape : shapes) {
    for (const std::vector<int>& lengths :
         {std::vector<int>{0}, std::vector<int>{1, 64, 127}, std::vector<int>{60, 200, 0, 63}}) {
      for (const Fill fill : testing::fills) {
        const bool huge = fill == Fill::ramp || fill == Fill::adversarial;
        World world(shape, lengths, fill, huge ? testing::huge_poison : testing::nan_poison);
        run(world);
        const std::vector<float> out = world.out();
        for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
          for (int row = 0; row < shape.block; row += 2) {
            for (int head = 0; head < shape.heads; ++head) {
              expect_close(world.call(), s, row, head);
            }
          }
        }
        ref::draft_attention(world.call());
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_TRUE(testing::same(out[i], world.out()[i])) << i;
        }
      }
    }
  }
}

// What else is in the batch changes no bit.
TEST_P(DraftAttentionTest, ASequenceIsTheSameAlone) {
  const Shape shape = {4, 2, 32, 16, 0};
  World both(shape, {90, 150}, Fill::random, testing::nan_poison);
  run(both);
  World alone = both;
  DraftAttention& call = alone.call();
  const std::size_t rows = 16 * 4 * 32;
  call.q += rows;
  call.k += rows / 2;
  call.v += rows / 2;
  call.out += rows;
  call.sequences = call.sequences.subspan(1);
  std::fill(call.out, call.out + rows, testing::nan_poison);
  testing::UseBackend use(GetParam());
  if (GetParam().reference) {
    ref::draft_attention(call);
  } else {
    draft_attention(call, use.pool);
  }
  for (std::size_t i = 0; i < 2 * rows; ++i) ASSERT_EQ(alone.out()[i], both.out()[i]);
}

INSTANTIATE_TEST_SUITE_P(Backends, DraftAttentionTest, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
