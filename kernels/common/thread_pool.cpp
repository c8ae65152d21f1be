#include "kernels/common/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>

#include "base/check.h"
#include "base/limits.h"

namespace copse {
namespace {

// About 30 microseconds: longer than the gap between two operations of a forward pass, short
// enough that an idle worker process costs nothing.
constexpr int spins_before_sleep = 1500;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1 && threads <= limits::worker_threads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::int64_t ThreadPool::workers_cpu_ns() {
  std::int64_t total = 0;
  for (std::thread& worker : workers_) {
    clockid_t clock{};
    timespec time{};
    if (pthread_getcpuclockid(worker.native_handle(), &clock) != 0) continue;
    if (clock_gettime(clock, &time) != 0) continue;
    total += static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  }
  return total;
}

// A worker that wakes late finds the round closed and misses nothing: the caller takes what is
// left, so it never waits for a thread that the system has not scheduled yet.
void ThreadPool::run(const Job& job) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_.store(job.begin, std::memory_order_relaxed);
    open_ = true;
    wake = sleeping_ > 0;
    round_.fetch_add(1, std::memory_order_release);
  }
  if (wake) wake_.notify_all();
  take_chunks(job);
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  for (int spins = 0; joined_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < spins_before_sleep) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    int spins = 0;
    while (round_.load(std::memory_order_acquire) == seen && spins < spins_before_sleep) {
      pause();
      ++spins;
    }
    std::unique_lock lock(mutex_);
    if (round_.load(std::memory_order_relaxed) == seen) {
      ++sleeping_;
      wake_.wait(lock, [&] { return stop_ || round_.load(std::memory_order_relaxed) != seen; });
      --sleeping_;
    }
    seen = round_.load(std::memory_order_relaxed);
    if (!open_) continue;
    const Job job = job_;
    joined_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    take_chunks(job);
    joined_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::take_chunks(const Job& job) {
  for (;;) {
    const int first = next_.fetch_add(job.grain, std::memory_order_relaxed);
    if (first >= job.end) return;
    job.call(job.body, first, std::min(first + job.grain, job.end));
  }
}

}  // namespace copse
