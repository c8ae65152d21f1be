#pragma once
// The GPU's engine for a ThreadedExecutor: the ranks meet in shared memory, then over NCCL. It
// stands in libcopse_cuda.so, which is opened here.
#include <memory>

#include "model/cuda/plugin.h"
#include "worker/cuda/engine_cuda.h"
#include "worker/engine_loader_cpu.h"
#include "worker/step_engine.h"

namespace copse {

struct CudaExecutorOptions {
  CudaEngineOptions engine;
  CudaGroupOptions group;
  int collective_fd = -1;  // of a shm region; not needed by a group of one
};

// While the process has one thread. Errors: unsupported where this build has no CUDA.
Result<std::unique_ptr<EngineLoader>> make_cuda_loader(const CudaExecutorOptions& options,
                                                       const Clock& clock);

}  // namespace copse
