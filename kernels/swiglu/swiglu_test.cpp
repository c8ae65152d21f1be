#include "kernels/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Guarded;
using testing::Inputs;

class Swiglu : public ::testing::TestWithParam<Backend> {
 protected:
  void run(ConstMatrix gate, ConstMatrix up, Matrix out) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::swiglu(gate, up, out);
    } else {
      swiglu(gate, up, out, use.pool);
    }
  }
};

TEST_P(Swiglu, AllShapesAndInputs) {
  for (const int rows : {1, 2, 40}) {
    for (const int columns : {1, 16, 31, 128, 300}) {
      for (const Fill fill : testing::fills) {
        Inputs values(fill);
        Guarded gate(rows, columns, testing::nan_poison);
        Guarded up(rows, columns, testing::nan_poison);
        Guarded out(rows, columns, testing::huge_poison);
        gate.fill(values);
        up.fill(values);
        run(gate.view(), up.view(), out.view());
        Guarded expected(rows, columns, testing::huge_poison);
        ref::swiglu(gate.view(), up.view(), expected.view());
        for (int r = 0; r < rows; ++r) {
          for (int i = 0; i < columns; ++i) {
            const double a = gate.view().row(r)[i];
            const double exact = a / (1.0 + std::exp(-a)) * up.view().row(r)[i];
            ASSERT_TRUE(within_tolerance(out.view().row(r)[i], exact, std::abs(exact), 8));
            ASSERT_TRUE(testing::same(out.view().row(r)[i], expected.view().row(r)[i]));
          }
        }
        EXPECT_TRUE(out.intact());
        run(gate.view(), up.view(), gate.view());
        EXPECT_TRUE(testing::same(gate.view().row(rows - 1)[columns - 1],
                                  expected.view().row(rows - 1)[columns - 1]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Swiglu, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
