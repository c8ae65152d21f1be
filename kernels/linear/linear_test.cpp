#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"
#include "kernels/common/tree_sum.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Guarded;
using testing::Inputs;

PackedWeight make_weight(WeightType type, int outputs, int inputs, Inputs& values) {
  const auto count = static_cast<std::size_t>(outputs * inputs);
  std::vector<float> floats(count);
  std::vector<Bf16> halves(count);
  for (std::size_t i = 0; i < count; ++i) {
    floats[i] = values.next();
    halves[i] = to_bf16(floats[i]);
  }
  return type == WeightType::bf16 ? pack_weight(halves.data(), outputs, inputs, inputs)
                                  : pack_weight(floats.data(), outputs, inputs, inputs);
}

class Linear : public ::testing::TestWithParam<Backend> {
 protected:
  void run(ConstMatrix x, const PackedWeight& weight, Matrix y, int leaves = 1) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::linear(x, weight, y, leaves);
    } else {
      linear(x, weight, y, use.pool, leaves);
    }
  }

  void expect_close(ConstMatrix x, const PackedWeight& weight, ConstMatrix y) {
    for (int m = 0; m < x.rows; ++m) {
      for (int n = 0; n < y.columns; ++n) {
        double sum = 0;
        double magnitude = 0;
        for (int k = 0; k < x.columns; ++k) {
          const double term = static_cast<double>(x.row(m)[k]) * weight.at(n, k);
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_TRUE(within_tolerance(y.row(m)[n], sum, magnitude, x.columns))
            << m << ' ' << n << ": " << y.row(m)[n] << " for " << sum;
      }
    }
  }

  void expect_equal(ConstMatrix a, ConstMatrix b) {
    for (int m = 0; m < a.rows; ++m) {
      for (int n = 0; n < a.columns; ++n) {
        ASSERT_TRUE(testing::same(a.row(m)[n], b.row(m)[n])) << m << ' ' << n;
      }
    }
  }
};

struct Shape {
  int rows, outputs, inputs, leaves;
};
constexpr Shape shapes[] = {{1, 16, 8, 1},   {1, 1, 1, 1},    {2, 17, 33, 1},  {3, 5, 64, 8},
                            {6, 64, 48, 2},  {7, 130, 40, 4}, {8, 48, 96, 8},  {13, 100, 56, 8},
                            {33, 72, 64, 8}, {65, 31, 24, 1}, {1, 200, 64, 8}, {5, 70, 40, 8},
                            {1, 47, 9, 1},   {1, 144, 24, 8}};

TEST_P(Linear, AllShapesAndInputs) {
  for (const Shape& s : shapes) {
    for (const Fill fill : testing::fills) {
      for (const WeightType type : {WeightType::bf16, WeightType::float32}) {
        for (const float poison : testing::poisons) {
          Inputs values(fill);
          Guarded x(s.rows, s.inputs, poison);
          Guarded y(s.rows, s.outputs, poison);
          Guarded expected(s.rows, s.outputs, poison);
          x.fill(values);
          const PackedWeight weight = make_weight(type, s.outputs, s.inputs, values);
          run(x.view(), weight, y.view(), s.leaves);
          ref::linear(x.view(), weight, expected.view(), s.leaves);
          expect_close(x.view(), weight, y.view());
          expect_equal(y.view(), expected.view());
          EXPECT_TRUE(y.intact());
          EXPECT_TRUE(x.intact());
        }
      }
    }
  }
}

TEST_P(Linear, ARowIsTheSameInEveryBatch) {
  Inputs values(Fill::random, 7);
  Guarded x(33, 192, testing::nan_poison);
  x.fill(values);
  const PackedWeight weight = make_weight(WeightType::bf16, 144, 192, values);
  Guarded all(33, 144, testing::nan_poison);
  run(x.view(), weight, all.view(), 8);
  for (const int rows : {1, 2, 5, 8}) {
    for (int first = 0; first + rows <= 33; first += 11) {
      Guarded part(rows, 144, testing::nan_poison);
      const ConstMatrix some = {x.view().row(first), rows, 192, x.view().stride};
      run(some, weight, part.view(), 8);
      expect_equal(part.view(), {all.view().row(first), rows, 144, all.view().stride});
    }
  }
}

// A rank of N holds 8 / N leaves; the collective adds the ranks' parts by the same tree.
TEST_P(Linear, RanksAddUpToOneRank) {
  constexpr int rows = 9, outputs = 80, inputs = 128;
  Inputs values(Fill::random, 11);
  Guarded x(rows, inputs, testing::nan_poison);
  x.fill(values);
  std::vector<float> source(outputs * inputs);
  for (float& value : source) value = values.next();
  Guarded whole(rows, outputs, testing::nan_poison);
  run(x.view(), pack_weight(source.data(), outputs, inputs, inputs), whole.view(), 8);
  for (const int ranks : {2, 4, 8}) {
    const int part = inputs / ranks;
    std::vector<Guarded> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      parts.emplace_back(rows, outputs, testing::nan_poison);
      const ConstMatrix slice = {x.view().data + rank * part, rows, part, x.view().stride};
      run(slice, pack_weight(source.data() + rank * part, outputs, part, inputs),
          parts.back().view(), 8 / ranks);
    }
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < outputs; ++n) {
        float sums[8];
        for (int rank = 0; rank < ranks; ++rank) {
          sums[rank] = parts[static_cast<std::size_t>(rank)].view().row(m)[n];
        }
        ASSERT_EQ(tree_sum_leaves(sums, ranks), whole.view().row(m)[n]) << ranks;
      }
    }
  }
}

TEST(LinearPanels, PartsOfTheOutputsHaveTheBitsOfTheWhole) {
  ThreadPool pool(1);
  Inputs values(Fill::random);
  const PackedWeight weight = make_weight(WeightType::bf16, 70, 24, values);
  Guarded x(5, 24, testing::poisons[0]);
  x.fill(values);
  Guarded whole(5, 70, testing::poisons[0]);
  linear(x.view(), weight, whole.view(), pool);
  for (const auto& [first, last] : {std::pair{0, 2}, {2, 5}, {1, 1}, {4, 5}}) {
    const int columns =
        first == last ? 0 : std::min(last * panel_outputs, 70) - first * panel_outputs;
    std::vector<float> part(static_cast<std::size_t>(5 * columns) + 1);
    linear_panels(x.view(), weight, first, last, matrix(part.data(), 5, columns), pool);
    for (int m = 0; m < 5; ++m) {
      for (int n = 0; n < columns; ++n) {
        EXPECT_TRUE(testing::same(part[static_cast<std::size_t>(m * columns + n)],
                                  whole.view().row(m)[first * panel_outputs + n]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Linear, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

TEST(PackedWeight, PanelsAreZeroPadded) {
  const float source[6] = {1, 2, 3, 4, 5, 6};
  const PackedWeight weight = pack_weight(source, 3, 2, 2);
  EXPECT_EQ(weight.panels(), 1);
  EXPECT_EQ(weight.bytes(), 16u * 2u * 4u);
  EXPECT_EQ(weight.at(2, 1), 6.0f);
  EXPECT_EQ(weight.float_panel(0)[1], 3.0f);
  EXPECT_EQ(weight.float_panel(0)[16], 2.0f);
  EXPECT_EQ(weight.float_panel(0)[3], 0.0f);
}

}  // namespace
}  // namespace copse::kernels
