#include "transport/collective/local.h"

#include <gtest/gtest.h>

#include <array>

namespace copse {
namespace {

TEST(LocalCollective, LeavesValuesAsTheyAre) {
  const auto collective = make_local_collective();
  EXPECT_EQ(collective->rank(), 0);
  EXPECT_EQ(collective->world_size(), 1);
  std::array<float, 3> values{1.0f, -2.0f, 3.5f};
  ASSERT_TRUE(collective->all_reduce_sum(values).ok());
  EXPECT_EQ(values, (std::array<float, 3>{1.0f, -2.0f, 3.5f}));
  std::array<float, 3> gathered{};
  ASSERT_TRUE(collective
                  ->all_gather(std::as_bytes(std::span(values)),
                               std::as_writable_bytes(std::span(gathered)))
                  .ok());
  EXPECT_EQ(gathered, values);
  ASSERT_TRUE(collective->broadcast(std::as_writable_bytes(std::span(values)), 0).ok());
  ASSERT_TRUE(collective->barrier().ok());
  EXPECT_EQ(collective->stats().calls, 4u);
  EXPECT_EQ(collective->stats().bytes, 36u);
}

TEST(LocalCollective, FailsAfterAbort) {
  const auto collective = make_local_collective();
  collective->abort();
  collective->abort();
  EXPECT_EQ(collective->barrier().error().code, ErrorCode::aborted);
  std::array<std::uint64_t, 1> values{7};
  EXPECT_EQ(collective->all_reduce_sum(values).error().code, ErrorCode::aborted);
}

}  // namespace
}  // namespace copse
