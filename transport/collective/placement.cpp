#include "transport/collective/placement.h"

#include <sched.h>

#include <algorithm>

namespace copse {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

void pin_rank(const std::vector<int>& cores, int rank, int world_size) {
  const auto count = static_cast<int>(cores.size());
  if (count == 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  const int begin = rank * count / world_size;
  const int end = std::max(begin + 1, (rank + 1) * count / world_size);
  for (int i = begin; i < end; ++i) {
    CPU_SET(static_cast<std::size_t>(cores[static_cast<std::size_t>(i)]), &set);
  }
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace copse
