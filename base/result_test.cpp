#include "base/result.h"

#include <gtest/gtest.h>

#include "base/bounded.h"
#include "base/digest.h"

namespace copse {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::invalid_argument, "value", "must be even"};
  return value / 2;
}

Result<int> quarter(int value) {
  COPSE_TRY(const int once, half(value));
  return half(once);
}

TEST(Result, CarriesAValueOrTheFirstError) {
  EXPECT_EQ(*quarter(8), 2);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(describe(quarter(6).error()), "value: must be even (invalid argument)");
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorIsAProgrammersError) {
  EXPECT_DEATH(static_cast<void>(*half(1)), "CHECK failed");
}

TEST(Bounded, RefusesToGrowPastItsBound) {
  Bounded<int, 2> items;
  EXPECT_TRUE(items.try_push(1));
  EXPECT_TRUE(items.try_push(2));
  EXPECT_FALSE(items.try_push(3));
  EXPECT_EQ(items.size(), 2u);
}

TEST(Digest, DependsOnOrderLengthAndPrevious) {
  const int one_two[] = {1, 2}, two_one[] = {2, 1};
  const auto of = [](std::uint64_t previous, std::span<const int> values) {
    return DigestChain(previous).add(values).value();
  };
  EXPECT_NE(of(0, one_two), of(0, two_one));
  EXPECT_NE(of(0, one_two), of(1, one_two));
  EXPECT_NE(of(0, one_two), of(0, std::span(one_two).first(1)));
}

}  // namespace
}  // namespace copse
