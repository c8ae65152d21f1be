#pragma once
// The GPU of this process.
#include <cstdint>
#include <string>

#include "base/result.h"

namespace copse::kernels::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int shared_memory_bytes = 0;  // that one block can ask for
  std::uint64_t l2_bytes = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;

  bool hopper() const { return major == 9 && minor == 0; }
};

// Makes device `index` (of those that CUDA_VISIBLE_DEVICES leaves) this thread's. Where there is no
// GPU or no driver: unavailable, with one sentence that says which.
Result<DeviceInfo> open_device(int index);
// Of the device in use; it was opened.
const DeviceInfo& device_info();
bool has_device();

}  // namespace copse::kernels::cuda
