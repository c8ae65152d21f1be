#include "kernels/tree_accept/tree_accept.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace copse::kernels {
namespace {

// Root 10; children 20 (row 1), 30 (row 2); 20 -> 40 (row 3); 40 -> 50 (row 4).
struct Accept {
  std::vector<TokenId> tokens = {10, 20, 30, 40, 50};
  std::vector<std::int32_t> parents = {-1, 0, 0, 1, 3};
  std::vector<TokenId> targets = {20, 40, 99, 50, 60};
  std::vector<TokenId> ends;
  std::array<std::int32_t, 8> accepted{};
  TreeAcceptTask task;

  void run(int remaining = 100) {
    task = {tokens, parents, targets, ends, remaining, accepted, 0, 0, false};
    tree_accept(std::span(&task, 1));
  }
  std::vector<std::int32_t> walk() const {
    return {accepted.begin(), accepted.begin() + task.walk_length};
  }
};

TEST(TreeAccept, FollowsTheTargetDownTheTree) {
  Accept accept;
  accept.run();
  EXPECT_EQ(accept.walk(), (std::vector<std::int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(accept.task.kept, 4);
  EXPECT_FALSE(accept.task.at_end);
}

TEST(TreeAccept, RootAloneIsAWalkOfOne) {
  Accept accept;
  accept.targets[0] = 77;
  accept.run();
  EXPECT_EQ(accept.walk(), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(accept.task.kept, 1);
}

TEST(TreeAccept, ASiblingNeverShortensTheWalk) {
  Accept with;
  with.run();
  Accept without;
  without.tokens = {10, 20, 40, 50};
  without.parents = {-1, 0, 1, 2};
  without.targets = {20, 40, 50, 60};
  without.run();
  EXPECT_EQ(with.task.walk_length, without.task.walk_length);
}

TEST(TreeAccept, CutsAtAnEndTokenInsideTheRun) {
  Accept accept;
  accept.ends = {40};
  accept.run();
  EXPECT_EQ(accept.task.walk_length, 4) << "the walk itself is not cut";
  EXPECT_EQ(accept.task.kept, 2) << "20, 40";
  EXPECT_TRUE(accept.task.at_end);
}

TEST(TreeAccept, CutsAtAnEndTokenThatIsTheBonus) {
  Accept accept;
  accept.ends = {60};
  accept.run();
  EXPECT_EQ(accept.task.kept, 4);
  EXPECT_TRUE(accept.task.at_end);
}

TEST(TreeAccept, CutsAtTheRemainingCountAndAnEndTokenInsideItWins) {
  Accept accept;
  accept.run(3);
  EXPECT_EQ(accept.task.kept, 3);
  EXPECT_FALSE(accept.task.at_end);
  accept.ends = {40, 60};
  accept.run(3);
  EXPECT_EQ(accept.task.kept, 2);
  EXPECT_TRUE(accept.task.at_end);
  accept.ends = {60};
  accept.run(3);
  EXPECT_EQ(accept.task.kept, 3);
  EXPECT_FALSE(accept.task.at_end) << "an end token beyond the count is not one of the output";
}

}  // namespace
}  // namespace copse::kernels
