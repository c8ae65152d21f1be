#include "gateway/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <utility>

namespace copse {
namespace {

// A loop's thread for what is posted, without a loop.
class Posted {
 public:
  void operator()(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    came_.notify_all();
  }
  void run(std::size_t count) {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return tasks_.size() >= count; });
    for (const auto& task : std::exchange(tasks_, {})) task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::function<void()>> tasks_;
};

WorkQueue::Work nothing() {
  return [] { return std::function<void()>([] {}); };
}

// Keeps the thread of a queue busy until release().
class Jam {
 public:
  // The queue has one thread.
  explicit Jam(WorkQueue& queue) {
    const auto busy = std::make_shared<std::atomic<bool>>(false);
    EXPECT_TRUE(queue.push(0, [busy, opened = open_.get_future().share()] {
      *busy = true;
      opened.wait();
      return std::function<void()>([] {});
    }));
    while (!*busy) std::this_thread::yield();
  }
  void release() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

TEST(WorkQueue, WorksElsewhereAndAnswersWhereItIsToldTo) {
  Posted posted;
  WorkQueue queue(std::ref(posted), 2);
  std::thread::id worked_on;
  std::thread::id answered_on;
  ASSERT_TRUE(queue.push(1, [&]() -> std::function<void()> {
    worked_on = std::this_thread::get_id();
    return [&] { answered_on = std::this_thread::get_id(); };
  }));
  posted.run(1);
  EXPECT_NE(worked_on, std::this_thread::get_id());
  EXPECT_EQ(answered_on, std::this_thread::get_id());
}

TEST(WorkQueue, OneThreadKeepsTheOrder) {
  Posted posted;
  WorkQueue queue(std::ref(posted), 1);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(queue.push(
        1, [&order, i]() -> std::function<void()> { return [&order, i] { order.push_back(i); }; }));
  }
  posted.run(100);
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkQueue, IsBoundedByCountAndByBytesAndHasRoomAgainAfterwards) {
  Posted posted;
  WorkQueue queue(std::ref(posted), 1);
  {
    Jam jam(queue);
    for (int i = 0; i < limits::queued_prepares; ++i) EXPECT_TRUE(queue.push(0, nothing()));
    EXPECT_FALSE(queue.push(0, nothing()));
    jam.release();
    posted.run(limits::queued_prepares + 1);
  }
  Jam jam(queue);
  EXPECT_FALSE(queue.push(limits::queued_prepare_bytes + 1, nothing()));
  EXPECT_TRUE(queue.push(limits::queued_prepare_bytes - 5, nothing()));
  EXPECT_FALSE(queue.push(6, nothing()));
  EXPECT_TRUE(queue.push(5, nothing()));
  jam.release();
  posted.run(3);
  EXPECT_TRUE(queue.push(limits::queued_prepare_bytes, nothing()));
}

TEST(WorkQueue, EndsWithTheRunningWorkAndLeavesTheRest) {
  Posted posted;
  std::atomic<int> ran = 0;
  {
    WorkQueue queue(std::ref(posted), 1);
    Jam jam(queue);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(queue.push(0, [&ran] {
        ++ran;
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return std::function<void()>([] {});
      }));
    }
    jam.release();
  }
  EXPECT_LE(ran, 1);
}

}  // namespace
}  // namespace copse
