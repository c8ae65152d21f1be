#pragma once
// The GPU's engine: loads one rank onto a device, captures a graph for each shape of a round, and
// keeps a second plan queued behind the running one.
#include <memory>
#include <string>

#include "kernels/verify_attention/verify_attention_cuda.h"
#include "transport/collective/device_collective.h"
#include "worker/engine.h"
#include "worker/step_engine.h"

namespace copse {

struct CudaEngineOptions {
  EngineOptions engine;
  int device = 0;                 // of those that CUDA_VISIBLE_DEVICES leaves
  bool float32 = false;           // weights, caches and arithmetic in float32: for parity tests
  bool dummy = false;             // random weights; engine.model needs its config.json alone
  bool graphs = true;             // otherwise each launch by itself
  double memory_fraction = 0.88;  // of the device's memory, all that is allocated
  kernels::cuda::VerifyVersion verify = kernels::cuda::VerifyVersion::automatic;
};

// Errors name the file or key; too small a device: resource_exhausted, with the numbers.
Result<std::unique_ptr<StepEngine>> load_cuda_engine(const CudaEngineOptions& options,
                                                     DeviceCollective& group, const Clock& clock,
                                                     const LoadObserver& progress);

}  // namespace copse
