#include "worker/slot_table.h"

#include <gtest/gtest.h>

namespace copse {
namespace {

SlotOpen opening(std::uint16_t slot, std::uint32_t generation) {
  SlotOpen open;
  open.slot = slot;
  open.generation = generation;
  open.remaining_tokens = 10;
  open.end_tokens = {1, 7};
  return open;
}

TEST(SlotTable, AppendsPagesAndFindsPositions) {
  SlotTable table(2, 100, 4096);
  ASSERT_TRUE(table.open(opening(1, 5)).ok());
  ASSERT_TRUE(table.enter(1, 5, {42, 7}).ok());
  ASSERT_TRUE(table.enter(1, 5, {9}).ok());
  EXPECT_EQ(table.capacity(1), 3 * limits::page_tokens);
  EXPECT_EQ(table.place(1, 0).page, 42);
  EXPECT_EQ(table.place(1, 64).page, 7);
  EXPECT_EQ(table.place(1, 130).page, 9);
  EXPECT_EQ(table.place(1, 130).row, 2);
  EXPECT_EQ(table[1].end_tokens().size(), 2u);
}

TEST(SlotTable, RefusesWhatDoesNotFit) {
  SlotTable table(2, 100, 128);
  EXPECT_FALSE(table.open(opening(2, 1)).ok()) << "no such slot";
  EXPECT_FALSE(table.enter(0, 1, {}).ok()) << "not open";
  EXPECT_FALSE(table.release({0, 1}).ok());
  ASSERT_TRUE(table.open(opening(0, 1)).ok());
  EXPECT_FALSE(table.open(opening(0, 2)).ok()) << "still open";
  EXPECT_FALSE(table.enter(0, 2, {}).ok()) << "another generation";
  EXPECT_FALSE(table.release({0, 2}).ok());
  EXPECT_FALSE(table.enter(0, 1, {100}).ok()) << "no such page";
  EXPECT_FALSE(table.enter(0, 1, {-1}).ok());
  SlotOpen nothing = opening(1, 1);
  nothing.remaining_tokens = 0;
  EXPECT_FALSE(table.open(nothing).ok());
  PlanPages many;
  for (int i = 0; i < limits::plan_entry_pages; ++i) many.push_back(1);
  EXPECT_TRUE(table.enter(0, 1, many).ok());
  EXPECT_FALSE(table.enter(0, 1, many).ok()) << "beyond the context";
}

TEST(SlotTable, ANewSequenceFindsNothingOfTheLast) {
  SlotTable table(1, 100, 4096);
  ASSERT_TRUE(table.open(opening(0, 1)).ok());
  ASSERT_TRUE(table.enter(0, 1, {3}).ok());
  table[0].length = 50;
  table[0].has_bonus = table[0].done = true;
  table[0].pending_features = 9;
  ASSERT_TRUE(table.release({0, 1}).ok());
  ASSERT_TRUE(table.open(opening(0, 2)).ok());
  EXPECT_EQ(table[0].length, 0);
  EXPECT_FALSE(table[0].has_bonus);
  EXPECT_FALSE(table[0].done);
  EXPECT_EQ(table[0].pending_features, 0);
  EXPECT_EQ(table.capacity(0), 0);
}

}  // namespace
}  // namespace copse
