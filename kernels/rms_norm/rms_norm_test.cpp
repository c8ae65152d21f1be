#include "kernels/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include "kernels/common/testing.h"
#include "kernels/common/tolerance.h"

namespace copse::kernels {
namespace {

using testing::Backend;
using testing::Fill;
using testing::Guarded;
using testing::Inputs;

class RmsNorm : public ::testing::TestWithParam<Backend> {
 protected:
  void run(ConstMatrix x, std::span<const float> weight, float eps, Matrix y) {
    testing::UseBackend use(GetParam());
    if (GetParam().reference) {
      ref::rms_norm(x, weight, eps, y);
    } else {
      rms_norm(x, weight, eps, y, use.pool);
    }
  }
};

std::vector<float> make_weight(int dim) {
  std::vector<float> weight(static_cast<std::size_t>(dim));
  Inputs values(Fill::random, 5);
  for (float& value : weight) value = values.next();
  return weight;
}

TEST_P(RmsNorm, AllShapesAndInputs) {
  constexpr float eps = 1e-6f;
  for (const int rows : {1, 3, 70}) {
    for (const int dim : {1, 15, 16, 33, 64, 256, 519}) {
      const std::vector<float> weight = make_weight(dim);
      for (const Fill fill : testing::fills) {
        Inputs values(fill);
        Guarded x(rows, dim, testing::nan_poison);
        Guarded y(rows, dim, testing::huge_poison);
        Guarded expected(rows, dim, testing::huge_poison);
        x.fill(values);
        run(x.view(), weight, eps, y.view());
        ref::rms_norm(x.view(), weight, eps, expected.view());
        for (int r = 0; r < rows; ++r) {
          double squares = 0;
          for (int i = 0; i < dim; ++i) {
            squares += static_cast<double>(x.view().row(r)[i]) * x.view().row(r)[i];
          }
          const double scale = 1.0 / std::sqrt(squares / dim + eps);
          for (int i = 0; i < dim; ++i) {
            const double exact = weight[static_cast<std::size_t>(i)] * (x.view().row(r)[i] * scale);
            ASSERT_TRUE(within_tolerance(y.view().row(r)[i], exact, std::abs(exact), dim / 16 + 8));
            ASSERT_TRUE(testing::same(y.view().row(r)[i], expected.view().row(r)[i]));
          }
        }
        EXPECT_TRUE(y.intact());
      }
    }
  }
}

TEST_P(RmsNorm, InPlaceAndAloneIsTheSame) {
  constexpr int rows = 9, dim = 100;
  const std::vector<float> weight = make_weight(dim);
  Inputs values(Fill::random, 3);
  Guarded x(rows, dim, testing::nan_poison);
  Guarded y(rows, dim, testing::nan_poison);
  x.fill(values);
  run(x.view(), weight, 1e-5f, y.view());
  for (int r = 0; r < rows; ++r) {
    const Matrix one = {x.view().row(r), 1, dim, dim};
    run(one, weight, 1e-5f, one);
    for (int i = 0; i < dim; ++i) ASSERT_EQ(one.row(0)[i], y.view().row(r)[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RmsNorm, ::testing::ValuesIn(testing::backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace copse::kernels
