// Latency of all_reduce_sum(float) among forked ranks: the median over blocks of twenty calls, bare
// and with 100 us of computing before each call, as in a step. Usage: collective_bench [calls]
// [spin_us]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "transport/collective/shm.h"

namespace copse {
namespace {

// A rank's turn on a shared core moves from call to call, so a single call's time says little.
constexpr int block_calls = 20;

using Clock = std::chrono::steady_clock;

struct Setting {
  int world_size = 8;
  std::size_t payload_bytes = 1024;
  std::int64_t compute_us = 0;
  int calls = 2000;
  bool pin = true;
  std::optional<Duration> spin = std::nullopt;
};

std::int64_t cpu_time_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

// This much time on a core, however often it is taken away meanwhile.
void compute(std::int64_t us) {
  const std::int64_t end = us > 0 ? cpu_time_us() + us : 0;
  while (us > 0 && cpu_time_us() < end) {
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median over blocks of the mean time of a round of computing and reducing, in us; negative on
// failure.
double run_rank(const Setting& s, int fd, int rank) {
  auto joined = join_shm(fd, rank, s.world_size, {.spin = s.spin, .pin = s.pin});
  if (!joined.ok()) return -1;
  std::vector<float> values(s.payload_bytes / sizeof(float));
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(s.calls));
  auto last = Clock::now();
  for (int i = 0; i < s.calls; ++i) {
    compute(s.compute_us);
    if (!(*joined)->all_reduce_sum(values).ok()) return -1;
    if ((i + 1) % block_calls != 0) continue;
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(now - last).count() / block_calls);
    last = now;
  }
  return median(std::move(times));
}

double run_group(const Setting& s) {
  const int fd = create_shm_region({s.world_size, 256u << 10}).value();
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  auto* result = static_cast<double*>(page);
  for (int rank = 0; rank < s.world_size; ++rank) {
    if (fork() == 0) {
      const double time = run_rank(s, fd, rank);
      if (rank == 0) *result = time;
      _exit(0);
    }
  }
  while (wait(nullptr) > 0) {
  }
  close(fd);
  const double time = *result;
  munmap(page, 4096);
  return time;
}

void print_row(Setting s) {
  const auto cores = std::min<long>(sysconf(_SC_NPROCESSORS_ONLN), s.world_size);
  const double ideal = 100.0 * s.world_size / static_cast<double>(cores);
  const double bare = run_group(s);
  s.compute_us = 100;
  s.calls /= 4;
  const double step = run_group(s);
  std::printf("%5d %9zu %4s %12.1f %18.1f\n", s.world_size, s.payload_bytes, s.pin ? "yes" : "no",
              bare, step - ideal);
  std::fflush(stdout);
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(40, std::atoi(argv[1])) : 4000;
  std::optional<copse::Duration> spin;
  if (argc > 2) spin = std::chrono::microseconds(std::atoi(argv[2]));
  std::printf("ranks     bytes  pin  us per call  us over computing\n");
  for (const bool pin : {false, true}) {
    for (const int world_size : {1, 2, 4, 8}) {
      for (const std::size_t bytes : {1u << 10, 8u << 10, 33u << 10, 128u << 10}) {
        copse::print_row({world_size, bytes, 0, calls, pin, spin});
      }
    }
  }
}
