#include "kernels/common/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/common/cuda/status.h"

namespace copse::kernels::cuda {

Result<DeviceMemory> DeviceMemory::allocate(std::size_t bytes) {
  DeviceMemory memory;
  void* data = nullptr;
  // An empty array has an address as well, so that kernels need no case of their own for it.
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaMalloc(&data, bytes == 0 ? 1 : bytes), "allocating device memory"));
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

Status copy_to_device(void* to, const void* from, std::size_t bytes) {
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device"));
  // A copy from pageable memory may return before its last bytes arrive, and streams that do not
  // block would not wait for it.
  return cuda_status(cudaStreamSynchronize(cudaStreamLegacy), "copying to the device");
}

Status copy_to_host(void* to, const void* from, std::size_t bytes) {
  return cuda_status(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying to the host");
}

Status clear(void* memory, std::size_t bytes, Stream stream) {
  return cuda_status(cudaMemsetAsync(memory, 0, bytes, stream), "clearing memory");
}

std::size_t DeviceArena::reserve(std::string name, std::size_t bytes) {
  CHECK(!allocated_);
  constexpr std::size_t kAlignment = 256;
  const std::size_t offset = bytes_;
  parts_.push_back({std::move(name), offset, bytes});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Status DeviceArena::allocate() {
  CHECK(!allocated_);
  COPSE_TRY(memory_, DeviceMemory::allocate(bytes_));
  COPSE_RETURN_IF_ERROR(cuda_status(cudaMemset(memory_.data(), 0, bytes_), "clearing memory"));
  allocated_ = true;
  for (const auto& bind : binds_) bind(memory_.data());
  binds_.clear();
  return {};
}

}  // namespace copse::kernels::cuda
