#pragma once
// Work on behalf of one client that takes long (parse, render, encode), away from the loop's
// thread: a few threads behind a bounded queue, first come first served.
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/limits.h"

namespace copse {

class WorkQueue {
 public:
  // Runs a task on the loop's thread, later; called from any thread.
  using Post = std::function<void(std::function<void()>)>;
  // Runs on one of the threads, and so touches nothing that is the loop's. What it returns is
  // posted.
  using Work = std::function<std::function<void()>()>;

  explicit WorkQueue(Post post, int threads = limits::prepare_threads);
  // Waits for the work that runs; what still waits never runs.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // `bytes`: what the work holds in memory while it waits. False: the queue is full.
  bool push(std::size_t bytes, Work work);

 private:
  struct Job {
    std::size_t bytes = 0;
    Work work;
  };
  void run();
  bool next(Job& job);

  Post post_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace copse
