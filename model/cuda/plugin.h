#pragma once
// What libcopse_cuda.so offers to programs that do not link it (base/plugin.h). Results come back
// through a pointer, so that the functions have C's linkage.
#include <memory>

#include "base/plugin.h"
#include "model/cuda/scorer_cuda.h"
#include "transport/collective/collective.h"
#include "transport/collective/device_collective.h"

namespace copse {

inline constexpr char kCudaLibrary[] = "libcopse_cuda.so";

struct CudaGroupOptions {
  int rank = 0;
  int world_size = 1;
  int device = 0;          // of those that CUDA_VISIBLE_DEVICES leaves
  bool share_gpu = false;  // all ranks on one device: right, and slow
};

extern "C" {
// Whether there is such a device: unavailable with one sentence otherwise.
using CudaCheckFunction = void(int device, Status* out);
// Before anything of CUDA, while the process has one thread.
using CudaPrepareFunction = void(const CudaGroupOptions*);
// Joins the ranks that meet in `host`, which carries what they need to find each other.
using CudaJoinFunction = void(const CudaGroupOptions*, Collective* host,
                              Result<std::unique_ptr<DeviceCollective>>* out);
using CudaLoadScorerFunction = void(const CudaScoreOptions*, DeviceCollective*,
                                    Result<std::unique_ptr<CudaScorer>>* out);
}

template <class Function>
struct CudaFunction {
  Function* address = nullptr;
  template <class... Arguments>
  void operator()(Arguments... arguments) const {
    address(arguments...);
  }
};

// `name`: copse_cuda_check, copse_cuda_prepare, copse_cuda_join, copse_cuda_load_scorer.
template <class Function>
Result<CudaFunction<Function>> cuda_function(const char* name) {
  auto symbol = plugin_symbol(kCudaLibrary, name);
  if (!symbol.ok() && symbol.error().code == ErrorCode::not_found) {
    return Error{ErrorCode::unsupported, "device",
                 "cuda was asked for, but this build has no CUDA (no nvcc was found)"};
  }
  COPSE_TRY(void* const address, std::move(symbol));
  return CudaFunction<Function>{reinterpret_cast<Function*>(address)};
}

}  // namespace copse
