#pragma once
// Ranks for the tests: forked processes, as in life, or threads over one mapping, where the thread
// sanitizer can watch them.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport/collective/shm.h"

namespace copse {

// What a rank does; true if everything it checked held.
using RankBody = std::function<bool(Collective&)>;

// A descriptor of the test's own region, closed at the end.
class TestRegion {
 public:
  explicit TestRegion(const ShmOptions& options)
      : world_size_(options.world_size), fd_(create_shm_region(options).value()) {}
  ~TestRegion() { close(fd_); }
  TestRegion(const TestRegion&) = delete;
  TestRegion& operator=(const TestRegion&) = delete;
  int fd() const { return fd_; }
  int world_size() const { return world_size_; }

 private:
  int world_size_;
  int fd_;
};

inline pid_t fork_rank(const TestRegion& region, int rank, const ShmJoin& join,
                       const RankBody& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  auto collective = join_shm(region.fd(), rank, region.world_size(), join);
  _exit(collective.ok() && body(**collective) ? 0 : 1);
}

inline std::vector<pid_t> fork_ranks(const TestRegion& region, const ShmJoin& join,
                                     const RankBody& body) {
  std::vector<pid_t> pids;
  for (int r = 0; r < region.world_size(); ++r) pids.push_back(fork_rank(region, r, join, body));
  return pids;
}

// True if the process ended by itself with status 0.
inline bool succeeded(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline bool processes_succeed(const ShmOptions& options, const RankBody& body,
                              const ShmJoin& join = {}) {
  const TestRegion region(options);
  bool good = true;
  for (const pid_t pid : fork_ranks(region, join, body)) good = succeeded(pid) && good;
  return good;
}

inline bool threads_succeed(const ShmOptions& options, const RankBody& body,
                            const ShmJoin& join = {}) {
  const TestRegion region(options);
  ShmRegion shared = ShmRegion::attach(region.fd()).value();
  std::vector<char> good(static_cast<std::size_t>(options.world_size), 0);
  std::vector<std::thread> threads;
  for (int r = 0; r < options.world_size; ++r) {
    std::shared_ptr<Collective> collective = shared.join(r, options.world_size, join).value();
    threads.emplace_back([&good, &body, r, collective] {
      good[static_cast<std::size_t>(r)] = body(*collective) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char one : good) {
    if (one == 0) return false;
  }
  return true;
}

}  // namespace copse
