#include "kernels/common/cuda/device.h"

#include <cuda_runtime_api.h>

#include <optional>

#include "kernels/common/cuda/status.h"

namespace copse::kernels::cuda {
namespace {

thread_local std::optional<DeviceInfo> current;

Status find_device(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Error{ErrorCode::unavailable, "device", "cuda was asked for, but there is no GPU here"};
  }
  if (error == cudaErrorInsufficientDriver) {
    return Error{ErrorCode::unavailable, "device",
                 "cuda was asked for, but there is no NVIDIA driver here that fits this build"};
  }
  COPSE_RETURN_IF_ERROR(cuda_status(error, "counting GPUs"));
  if (index < 0 || index >= count) {
    return Error{
        ErrorCode::invalid_argument, "device",
        "GPU " + std::to_string(index) + " was asked for, but there are " + std::to_string(count)};
  }
  return cuda_status(cudaSetDevice(index), "cudaSetDevice");
}

}  // namespace

bool has_device() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  if (!found) cudaGetLastError();  // leaves no error behind for the next check
  return found;
}

Result<DeviceInfo> open_device(int index) {
  COPSE_RETURN_IF_ERROR(find_device(index));
  cudaDeviceProp properties;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  std::size_t free = 0;
  std::size_t total = 0;
  COPSE_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  DeviceInfo info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.shared_memory_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  info.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
  info.memory_bytes = total;
  info.free_bytes = free;
  current = info;
  return info;
}

const DeviceInfo& device_info() {
  if (!current) {
    int index = 0;
    CHECK(cudaGetDevice(&index) == cudaSuccess);
    CHECK(open_device(index).ok());
  }
  return *current;
}

}  // namespace copse::kernels::cuda
