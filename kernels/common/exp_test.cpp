#include "kernels/common/exp.h"

#include <gtest/gtest.h>

#include "kernels/common/tolerance.h"

namespace copse::kernels {
namespace {

TEST(ExpFixed, CloseToTheExponential) {
  for (float x = -86.4f; x < 88.7f; x += 0.00317f) {
    const double expected = std::exp(static_cast<double>(x));
    EXPECT_TRUE(within_tolerance(exp_fixed(x), expected, expected, 3)) << x;
  }
}

TEST(ExpFixed, Ends) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_fixed(0.0f), 1.0f);
  EXPECT_EQ(exp_fixed(-0.0f), 1.0f);
  EXPECT_EQ(exp_fixed(-infinity), 0.0f);
  EXPECT_EQ(exp_fixed(-87.0f), 0.0f);
  EXPECT_EQ(exp_fixed(89.0f), infinity);
  EXPECT_EQ(exp_fixed(infinity), infinity);
  EXPECT_TRUE(std::isnan(exp_fixed(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isfinite(exp_fixed(exp_overflow)));
}

}  // namespace
}  // namespace copse::kernels
