#include "coordinator/digest_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace copse {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DigestVote, NamesTheMinority) {
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{7}), IsEmpty());
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{7, 7, 7, 7}), IsEmpty());
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{7, 7, 8, 7}), ElementsAre(2));
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{9, 7, 8, 7, 7}), ElementsAre(0, 2));
}

TEST(DigestVote, WithoutAMajorityAllAreNamed) {
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{7, 8}), ElementsAre(0, 1));
  EXPECT_THAT(dissenters(std::vector<std::uint64_t>{7, 7, 8, 8}), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(name_ranks(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector<int>{0, 2}), "ranks 0, 2");
}

// Every field that the ranks must agree on changes the signature; tokens and timing do not.
TEST(DigestVote, TheSignatureCoversWhatMustAgree) {
  StepResult result;
  result.step = 5;
  result.slots.push_back({1, 2, 3, 4, 5, 6, {}, FinishReason::none});
  const std::uint64_t base = signature(result);
  const auto differs = [&](auto change) {
    StepResult other = result;
    change(other);
    return signature(other) != base;
  };
  EXPECT_TRUE(differs([](StepResult& r) { ++r.slots[0].slot; }));
  EXPECT_TRUE(differs([](StepResult& r) { ++r.slots[0].generation; }));
  EXPECT_TRUE(differs([](StepResult& r) { r.slots[0].digest ^= 1; }));
  EXPECT_TRUE(differs([](StepResult& r) { ++r.slots[0].length; }));
  EXPECT_TRUE(differs([](StepResult& r) { ++r.slots[0].walk_length; }));
  EXPECT_TRUE(differs([](StepResult& r) { r.slots[0].finish = FinishReason::stop; }));
  EXPECT_TRUE(differs([](StepResult& r) { r.slots.push_back({}); }));
  EXPECT_FALSE(differs([](StepResult& r) { r.slots[0].tokens.push_back(1); }));
  EXPECT_FALSE(differs([](StepResult& r) { r.timing.total_us = 9; }));
}

}  // namespace
}  // namespace copse
