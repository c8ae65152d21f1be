#include "kernels/common/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace copse {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int count = 0; count < 200; ++count) {
      std::vector<std::atomic<int>> seen(200);
      pool.parallel_for(3, count, 7, [&](int first, int last) {
        EXPECT_LT(first, last);
        EXPECT_LE(last - first, threads > 1 ? 7 : count);
        for (int i = first; i < last; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(seen[static_cast<std::size_t>(i)].load(), i >= 3 && i < count ? 1 : 0);
      }
    }
  }
}

TEST(ThreadPool, OneThreadRunsInline) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  int calls = 0;
  pool.parallel_for(0, 1000, 1, [&](int first, int last) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(last - first, 1000);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, SleepingWorkersWakeAgain) {
  ThreadPool pool(3);
  std::atomic<int> sum = 0;
  for (int round = 0; round < 20; ++round) {
    pool.parallel_for(0, 64, 1, [&](int first, int last) { sum += last - first; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sum.load(), 20 * 64);
}

TEST(ThreadPool, ManyRoundsInARow) {
  ThreadPool pool(4);
  std::atomic<std::int64_t> sum = 0;
  for (int round = 0; round < 20000; ++round) {
    pool.parallel_for(0, 8, 1, [&](int first, int last) {
      for (int i = first; i < last; ++i) sum += i;
    });
  }
  EXPECT_EQ(sum.load(), 20000 * 28);
}

}  // namespace
}  // namespace copse
