#pragma once
// Ranks of one GPU for the tests: processes forked before anything of CUDA was called, since a
// driver that was started does not survive a fork. They meet through shared memory.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "transport/collective/nccl_collective.h"

namespace copse {

// What the ranks of a test share.
struct Meeting {
  std::atomic<int> id_state{0};  // 1: the id is there, -1: there is none
  NcclId id;
  std::atomic<int> arrived{0};
  std::atomic<int> stage{0};  // for the test's own order of events
  std::uint64_t digest[limits::world_size] = {};

  void wait_for_stage(int wanted) const {
    while (stage.load() < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

// One rank's stream and collective.
struct GpuRank {
  Meeting& meeting;
  DeviceCollective& collective;
  cudaStream_t stream;
};
using GpuRankBody = std::function<bool(GpuRank&)>;

// Whether a process of this machine finds a GPU. Asked by a child: see above.
inline bool gpu_here() {
  const pid_t pid = fork();
  if (pid == 0) {
    int count = 0;
    _exit(cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? 0 : 1);
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline bool fail(int rank, const Error& error) {
  std::fprintf(stderr, "rank %d: %s\n", rank, describe(error).c_str());
  return false;
}

// The id that all ranks have once the first has made it.
inline Result<NcclId> common_id(Meeting& meeting, int rank) {
  if (rank == 0) {
    Result<NcclId> id = make_nccl_id();
    if (id.ok()) meeting.id = *id;
    meeting.id_state.store(id.ok() ? 1 : -1);
    return id;
  }
  while (meeting.id_state.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (meeting.id_state.load() > 0) return meeting.id;
  return Error{ErrorCode::aborted, "collective", "the first rank made no id"};
}

inline bool run_rank(Meeting& meeting, int rank, int world_size, Duration timeout,
                     const GpuRankBody& body) {
  set_nccl_environment(rank, true);
  cudaStream_t stream = nullptr;
  if (cudaSetDevice(0) != cudaSuccess ||
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return fail(rank, {ErrorCode::io, "device", "no stream"});
  }
  const Result<NcclId> id = common_id(meeting, rank);
  if (!id.ok()) return fail(rank, id.error());
  auto collective =
      join_nccl({.rank = rank, .world_size = world_size, .id = *id, .timeout = timeout});
  if (!collective.ok()) return fail(rank, collective.error());
  GpuRank self{meeting, **collective, stream};
  return body(self);
}

class GpuRanks {
 public:
  GpuRanks()
      : memory_(mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) {
    CHECK(memory_ != MAP_FAILED);
    meeting_ = new (memory_) Meeting;
  }
  ~GpuRanks() { munmap(memory_, sizeof(Meeting)); }
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;

  // True if every rank's body held.
  bool run(int world_size, const GpuRankBody& body, Duration timeout = milliseconds(30'000)) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < world_size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) _exit(run_rank(*meeting_, rank, world_size, timeout, body) ? 0 : 1);
      pids.push_back(pid);
    }
    bool good = true;
    for (const pid_t pid : pids) {
      int status = 0;
      good =
          waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 && good;
    }
    return good;
  }
  Meeting& meeting() { return *meeting_; }

 private:
  void* memory_;
  Meeting* meeting_ = nullptr;
};

}  // namespace copse
