#include "scheduler/kv_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace copse {
namespace {

TEST(KvPages, PromisesBoundWhatOthersGet) {
  KvPages pages(10, 4);
  EXPECT_TRUE(pages.reserve(0, 6));
  EXPECT_FALSE(pages.reserve(1, 5));
  EXPECT_TRUE(pages.reserve(1, 4));
  EXPECT_FALSE(pages.reserve(2, 1));
  EXPECT_EQ(pages.take(0), 0);
  EXPECT_EQ(pages.take(1), 1);
  EXPECT_EQ(pages.used(), 2);
  EXPECT_TRUE(pages.check().ok());
}

TEST(KvPages, ReleasedPagesRestUntilTheLastPlanIsAnswered) {
  KvPages pages(4, 2);
  ASSERT_TRUE(pages.reserve(0, 4));
  pages.take(0);
  pages.take(0);
  pages.release(0, 7);
  EXPECT_EQ(pages.quarantined(), 2);
  EXPECT_FALSE(pages.reserve(1, 3));
  pages.answered(6);
  EXPECT_EQ(pages.free(), 2);
  pages.answered(7);
  EXPECT_EQ(pages.free(), 4);
  EXPECT_TRUE(pages.reserve(1, 4));
  EXPECT_TRUE(pages.check().ok());
}

TEST(KvPages, ReleaseAfterTheAnswerIsImmediate) {
  KvPages pages(2, 1);
  ASSERT_TRUE(pages.reserve(0, 2));
  pages.take(0);
  pages.answered(3);
  pages.release(0, 3);
  EXPECT_EQ(pages.free(), 2);
  EXPECT_EQ(pages.quarantined(), 0);
}

// Random histories against a count kept beside them; the invariants hold after every operation.
TEST(KvPages, InvariantsHoldUnderRandomHistories) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SeededRandom random(seed);
    constexpr int kOwners = 5;
    KvPages pages(40, kOwners);
    std::vector<int> promised(kOwners, 0);
    std::vector<int> owned(kOwners, 0);
    StepId step = 1;
    for (int i = 0; i < 300; ++i) {
      const auto owner = static_cast<KvPages::Owner>(random.below(kOwners));
      switch (random.below(4)) {
        case 0:
          if (promised[owner] == 0 && owned[owner] == 0) {
            const int count = 1 + static_cast<int>(random.below(20));
            if (pages.reserve(owner, count)) promised[owner] = count;
          }
          break;
        case 1:
          if (promised[owner] > 0) {
            pages.take(owner);
            --promised[owner];
            ++owned[owner];
          }
          break;
        case 2:
          pages.release(owner, step + random.below(2));
          promised[owner] = owned[owner] = 0;
          break;
        default:
          pages.answered(step++);
      }
      ASSERT_TRUE(pages.check().ok()) << describe(pages.check().error());
      ASSERT_EQ(pages.owned(owner), owned[owner]);
    }
    for (KvPages::Owner owner = 0; owner < kOwners; ++owner) pages.release(owner, step);
    pages.answered(step + 1);
    EXPECT_EQ(pages.free(), pages.total());
  }
}

}  // namespace
}  // namespace copse
