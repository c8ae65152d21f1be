#include "gateway/work_queue.h"

#include <utility>

namespace copse {

WorkQueue::WorkQueue(Post post, int threads) : post_(std::move(post)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkQueue::push(std::size_t bytes, Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= limits::queued_prepares ||
        bytes > limits::queued_prepare_bytes - waiting_bytes_) {
      return false;
    }
    waiting_bytes_ += bytes;
    waiting_.push_back({bytes, std::move(work)});
  }
  wake_.notify_one();
  return true;
}

bool WorkQueue::next(Job& job) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
  if (stopping_) return false;
  job = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= job.bytes;
  return true;
}

void WorkQueue::run() {
  Job job;
  while (next(job)) {
    post_(job.work());
    job = {};  // what it holds goes now, not when the next one comes
  }
}

}  // namespace copse
