#include "kernels/verify_attention/verify_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/limits.h"
#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"
#include "kernels/verify_attention/visible.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Inputs;

// A sequence as a test describes it: parents of its rows (-1: none), the prefix before them.
struct Plan {
  int prefix = 0;
  std::vector<int> parents;
  bool chain = false;  // pass no masks

  static Plan chain_of(int prefix, int rows) {
    Plan plan = {prefix, {}, true};
    for (int i = 0; i < rows; ++i) plan.parents.push_back(i - 1);
    return plan;
  }
  static Plan tree_of(int prefix, int rows, std::uint64_t seed) {
    Plan plan = {prefix, {-1}, false};
    SeededRandom random(seed);
    for (int i = 1; i < rows; ++i) {
      const int near = std::max(0, i - 6);
      plan.parents.push_back(near +
                             static_cast<int>(random.below(static_cast<std::uint64_t>(i - near))));
    }
    return plan;
  }
  int rows() const { return static_cast<int>(parents.size()); }
  std::vector<int> path(int row) const {
    std::vector<int> nodes;
    for (int node = row; node >= 0; node = parents[static_cast<std::size_t>(node)]) {
      nodes.insert(nodes.begin(), node);
    }
    return nodes;
  }
};

// Memory of one call; everything a row must not read is poison.
class World {
 public:
  World(int heads, int latent, int rope, std::vector<Plan> plans, Fill fill, float poison)
      : plans_(std::move(plans)) {
    call_ = {.heads = heads,
             .latent = latent,
             .rope = rope,
             .scale = 0.17f,
             .scratch_rows = 70,
             .q = nullptr,
             .pages = nullptr,
             .scratch = nullptr,
             .out = nullptr,
             .sequences = {}};
    int rows = 0;
    int pages = 3;  // never used
    for (const Plan& plan : plans_) {
      rows += plan.rows();
      pages += (plan.prefix + 63) / 64;
    }
    const int width = latent + rope;
    Inputs values(fill);
    // Scores of adversarial inputs would be far apart, and one token would win: keep them near.
    q_.assign(size(rows * heads * width), 0);
    for (float& value : q_) value = values.next() / 8;
    pages_.assign(size(pages * 64 * width), poison);
    scratch_.assign(plans_.size() * size(call_.scratch_rows * width), poison);
    out_.assign(size(rows * heads * latent + 32), poison);
    PageId next = pages - 1;
    int first_row = 0;
    for (std::size_t s = 0; s < plans_.size(); ++s) {
      const Plan& plan = plans_[s];
      std::vector<PageId>& table = tables_.emplace_back();
      for (int p = 0; p < plan.prefix; ++p) {
        if (p % 64 == 0) table.push_back(next--);
        float* row = pages_.data() + (table.back() * 64 + p % 64) * width;
        for (int i = 0; i < width; ++i) row[i] = values.next();
      }
      for (int r = 0; r < plan.rows(); ++r) {
        for (int i = 0; i < width; ++i) scratch_row(s, r)[i] = values.next();
      }
      std::vector<std::uint64_t>& masks = masks_.emplace_back();
      const int words = (plan.rows() + 63) / 64;
      for (int r = 0; r < plan.rows(); ++r) {
        std::vector<std::uint64_t> mask(size(words));
        for (const int node : plan.path(r)) mask[size(node / 64)] |= 1ull << (node % 64);
        masks.insert(masks.end(), mask.begin(), mask.end());
      }
      sequences_.push_back(
          {first_row, plan.rows(), plan.prefix, static_cast<int>(s), nullptr, nullptr, words});
      first_row += plan.rows();
    }
  }

  VerifyAttention& call() {
    call_.q = q_.data();
    call_.pages = pages_.data();
    call_.scratch = scratch_.data();
    call_.out = out_.data();
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      sequences_[s].pages = tables_[s].data();
      sequences_[s].ancestors = plans_[s].chain ? nullptr : masks_[s].data();
    }
    call_.sequences = sequences_;
    return call_;
  }
  float* scratch_row(std::size_t sequence, int row) {
    return scratch_.data() +
           (sequence * size(call_.scratch_rows) + size(row)) * size(call_.latent + call_.rope);
  }
  const Plan& plan(std::size_t s) const { return plans_[s]; }
  const VerifySequence& sequence(std::size_t s) const { return sequences_[s]; }
  float* q_of(int row) { return q_.data() + row * call_.heads * (call_.latent + call_.rope); }
  float* out_of(int row) { return out_.data() + row * call_.heads * call_.latent; }
  std::vector<float>& out() { return out_; }

 private:
  static std::size_t size(int count) { return static_cast<std::size_t>(count); }

  std::vector<Plan> plans_;
  VerifyAttention call_;
  std::vector<VerifySequence> sequences_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<float> q_, pages_, scratch_, out_;
};

class VerifyAttentionTest : public ::testing::TestWithParam<Backend> {
 protected:
  void run(World& world) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::verify_attention(world.call());
    } else {
      verify_attention(world.call(), use.pool);
    }
  }

  // Float64, straight from the definition.
  void expect_close(World& world) {
    const VerifyAttention& call = world.call();
    for (std::size_t s = 0; s < call.sequences.size(); ++s) {
      const VerifySequence& sequence = call.sequences[s];
      for (int row = 0; row < sequence.rows; ++row) {
        std::vector<const float*> tokens;
        for (int p = 0; p < sequence.prefix_length; ++p) {
          tokens.push_back(prefix_row(call, sequence, p));
        }
        for (const int node : world.plan(s).path(row)) {
          tokens.push_back(world.scratch_row(s, node));
        }
        for (int head = 0; head < call.heads; ++head) {
          expect_head(call, tokens, sequence.first_row + row, head);
        }
      }
    }
  }

  void expect_head(const VerifyAttention& call, const std::vector<const float*>& tokens, int row,
                   int head) {
    const int width = call.latent + call.rope;
    const float* q = call.q + (row * call.heads + head) * width;
    std::vector<double> weights;
    double largest = -1e300, span = 0, sum = 0;
    for (const float* token : tokens) {
      double score = 0, magnitude = 0;
      for (int i = 0; i < width; ++i) {
        score += static_cast<double>(q[i]) * token[i] * call.scale;
        magnitude += std::abs(static_cast<double>(q[i]) * token[i] * call.scale);
      }
      weights.push_back(score);
      largest = std::max(largest, score);
      span = std::max(span, magnitude);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (int i = 0; i < call.latent; ++i) {
      double value = 0, magnitude = 0;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        value += weights[t] / sum * tokens[t][i];
        // The last term: weights below exp_underflow count as zero.
        magnitude += (weights[t] / sum + 1e-30) * std::abs(static_cast<double>(tokens[t][i]));
      }
      // An error of a score is a relative error of its weight.
      const double factor = 1 + span;
      const float actual = call.out[(row * call.heads + head) * call.latent + i];
      ASSERT_TRUE(within_tolerance(actual, value, magnitude * factor,
                                   width / 8 + static_cast<int>(tokens.size())))
          << row << ' ' << head << ' ' << i << ": " << actual << " for " << value;
    }
  }
};

struct Shape {
  int heads, latent, rope;
};
constexpr Shape shapes[] = {{4, 64, 32}, {1, 96, 32}, {3, 40, 10}, {2, 512, 64}, {5, 7, 4}};

std::vector<std::vector<Plan>> batches() {
  return {{Plan::chain_of(0, 1)},
          {Plan::chain_of(63, 1), Plan::chain_of(64, 2), Plan::chain_of(65, 1)},
          {Plan::chain_of(0, 70)},
          {Plan::chain_of(100, 66)},
          {Plan::tree_of(0, 9, 1), Plan::tree_of(190, 33, 2)},
          {Plan::tree_of(61, 67, 3), Plan::chain_of(128, 1), Plan::tree_of(10, 2, 4)}};
}

TEST_P(VerifyAttentionTest, AllShapesAndInputs) {
  for (const Shape& shape : shapes) {
    for (const std::vector<Plan>& batch : batches()) {
      for (const Fill fill : testing::fills) {
        // Large ones repeat what small ones test, with other widths: random inputs are enough.
        if (shape.latent == 512 && fill != Fill::random) continue;
        const bool huge = fill == Fill::ramp || fill == Fill::adversarial;
        World world(shape.heads, shape.latent, shape.rope, batch, fill,
                    huge ? testing::huge_poison : testing::nan_poison);
        run(world);
        const std::vector<float> out = world.out();
        expect_close(world);
        ref::verify_attention(world.call());
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_TRUE(testing::same(out[i], world.out()[i])) << i;
        }
      }
    }
  }
}

// A node's row equals the row of plain decoding after its ancestors were committed to pages, and
// the last row of a chain of its path: same bits.
TEST_P(VerifyAttentionTest, TreeChainAndPlainDecodingGiveTheSameBits) {
  constexpr int heads = 2, latent = 64, rope = 32, width = latent + rope;
  for (const int prefix : {0, 40, 64, 120}) {
    World tree(heads, latent, rope, {Plan::tree_of(prefix, 50, 9)}, Fill::random,
               testing::nan_poison);
    run(tree);
    for (int row = 0; row < 50; row += 7) {
      const std::vector<int> path = tree.plan(0).path(row);
      const int depth = static_cast<int>(path.size());
      World chain(heads, latent, rope, {Plan::chain_of(prefix, depth)}, Fill::random,
                  testing::nan_poison);
      World plain(heads, latent, rope, {Plan::chain_of(prefix + depth - 1, 1)}, Fill::random,
                  testing::nan_poison);
      const auto copy = [&](World& from, World& to) {
        for (int p = 0; p < prefix; ++p) {
          std::copy_n(prefix_row(from.call(), from.call().sequences[0], p), width,
                      const_cast<float*>(prefix_row(to.call(), to.call().sequences[0], p)));
        }
      };
      copy(tree, chain);
      copy(tree, plain);
      for (int i = 0; i < depth; ++i) {
        const float* node = tree.scratch_row(0, path[static_cast<std::size_t>(i)]);
        std::copy_n(node, width, chain.scratch_row(0, i));
        float* committed = i + 1 == depth
                               ? plain.scratch_row(0, 0)
                               : const_cast<float*>(prefix_row(
                                     plain.call(), plain.call().sequences[0], prefix + i));
        std::copy_n(node, width, committed);
      }
      std::copy_n(tree.q_of(row), heads * width, chain.q_of(depth - 1));
      std::copy_n(tree.q_of(row), heads * width, plain.q_of(0));
      run(chain);
      run(plain);
      for (int i = 0; i < heads * latent; ++i) {
        ASSERT_EQ(tree.out_of(row)[i], chain.out_of(depth - 1)[i]) << prefix << ' ' << row;
        ASSERT_EQ(tree.out_of(row)[i], plain.out_of(0)[i]) << prefix << ' ' << row;
      }
    }
  }
}

TEST(VerifyAttentionCosts, CountVisiblePairs) {
  World world(2, 4, 2, {Plan::chain_of(10, 3), Plan::tree_of(5, 1, 1)}, Fill::ones,
              testing::nan_poison);
  EXPECT_EQ(verify_attention_flops(world.call()), 2u * (11 + 12 + 13 + 6) * 2 * (6 + 4));
  EXPECT_EQ(verify_attention_bytes_moved(world.call()), 4u * ((13 + 6) * 6 + 4 * 2 * (6 + 4)));
}

INSTANTIATE_TEST_SUITE_P(Backends, VerifyAttentionTest, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
