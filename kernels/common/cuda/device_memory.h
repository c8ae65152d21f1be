#pragma once
// Device memory: DeviceBuffer owns one array; DeviceArena owns one allocation and hands out parts
// of it, so that a worker allocates once, from a plan that it can print.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

// Bytes from cudaMalloc, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  static Result<DeviceMemory> allocate(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Synchronous copies, for set-up and tests. Sizes in bytes.
Status copy_to_device(void* to, const void* from, std::size_t bytes);
Status copy_to_host(void* to, const void* from, std::size_t bytes);
// Zeroes, in the order of the stream.
Status clear(void* memory, std::size_t bytes, Stream stream);

template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(std::size_t count) {
    DeviceBuffer buffer;
    COPSE_TRY(buffer.memory_, DeviceMemory::allocate(count * sizeof(T)));
    return buffer;
  }
  static Result<DeviceBuffer> from(std::span<const T> values) {
    COPSE_TRY(DeviceBuffer buffer, allocate(values.size()));
    COPSE_RETURN_IF_ERROR(copy_to_device(buffer.data(), values.data(), values.size_bytes()));
    return buffer;
  }
  Result<std::vector<T>> read() const {
    std::vector<T> values(size());
    COPSE_RETURN_IF_ERROR(copy_to_host(values.data(), data(), values.size() * sizeof(T)));
    return values;
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::size_t size() const { return memory_.bytes() / sizeof(T); }

 private:
  DeviceMemory memory_;
};

// First every array is placed under a name, then all are allocated at once: what was placed is the
// plan. Arrays are aligned to 256 bytes; memory is zero at first.
class DeviceArena {
 public:
  struct Part {
    std::string name;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  // `pointer` is set by allocate() and must stay where it is until then.
  template <class T>
  void place(std::string name, std::size_t count, T*& pointer) {
    const std::size_t offset = reserve(std::move(name), count * sizeof(T));
    binds_.push_back(
        [offset, &pointer](std::byte* memory) { pointer = reinterpret_cast<T*>(memory + offset); });
  }
  const std::vector<Part>& parts() const { return parts_; }
  std::size_t bytes() const { return bytes_; }
  // Once.
  Status allocate();
  bool allocated() const { return allocated_; }

 private:
  std::size_t reserve(std::string name, std::size_t bytes);

  std::vector<Part> parts_;
  std::vector<std::function<void(std::byte*)>> binds_;
  std::size_t bytes_ = 0;
  bool allocated_ = false;
  DeviceMemory memory_;
};

}  // namespace copse::kernels::cuda
