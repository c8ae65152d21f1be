#include "kernels/common/cuda/status.h"

#include <cuda_runtime_api.h>

#include <string>

namespace copse::kernels::cuda {

Status cuda_status(int error, const char* what) {
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaSuccess) return {};
  const ErrorCode kind =
      code == cudaErrorMemoryAllocation ? ErrorCode::resource_exhausted : ErrorCode::io;
  return Error{kind, "device", std::string(what) + ": " + cudaGetErrorString(code)};
}

Status launched(const char* kernel) {
  return cuda_status(cudaGetLastError(), kernel);
}

}  // namespace copse::kernels::cuda
