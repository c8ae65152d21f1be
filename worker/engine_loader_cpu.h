#pragma once
// The CPU's engine for a ThreadedExecutor: joins the group over shared memory, then loads.
#include <memory>

#include "worker/engine.h"
#include "worker/step_engine.h"

namespace copse {

struct CpuExecutorOptions {
  EngineOptions engine;
  int rank = 0;
  int world_size = 1;
  int collective_fd = -1;  // of a shm region; not needed by a group of one
};

std::unique_ptr<EngineLoader> make_cpu_loader(const CpuExecutorOptions& options,
                                              const Clock& clock);

}  // namespace copse
