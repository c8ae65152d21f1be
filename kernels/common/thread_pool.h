#pragma once
// Fixed threads that split the outputs of one operation, never a sum (docs/decisions/0002): the
// number of threads changes no bit. With one thread everything runs inline.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace copse {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts none. At most limits::worker_threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // CPU time of the threads that it started, nanoseconds.
  std::int64_t workers_cpu_ns();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(first, last) on ranges of at most `grain` indices that together cover [begin, end)
  // once, on any thread and in any order; returns when all are done. Allocates nothing. One caller
  // at a time, not from inside a body.
  template <class Body>
  void parallel_for(int begin, int end, int grain, const Body& body) {
    if (end <= begin) return;
    if (workers_.empty() || end - begin <= grain) {
      body(begin, end);
      return;
    }
    run({begin, end, grain, &body, [](const void* erased, int first, int last) {
           (*static_cast<const Body*>(erased))(first, last);
         }});
  }

 private:
  struct Job {
    int begin = 0;
    int end = 0;
    int grain = 1;
    const void* body = nullptr;
    void (*call)(const void* body, int first, int last) = nullptr;
  };
  void run(const Job& job);
  void work();
  void take_chunks(const Job& job);

  std::vector<std::thread> workers_;
  std::mutex mutex_;  // of job_, open_ and sleeping_
  std::condition_variable wake_;
  Job job_;
  bool open_ = false;                     // workers may still join the round
  int sleeping_ = 0;                      // workers that wait on wake_
  std::atomic<std::uint64_t> round_ = 0;  // grows by one with each job
  std::atomic<int> next_ = 0;             // first index that nobody took
  std::atomic<int> joined_ = 0;           // workers inside the round
  std::atomic<bool> stop_ = false;
};

}  // namespace copse
