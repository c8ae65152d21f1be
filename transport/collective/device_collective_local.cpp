#include "transport/collective/device_collective_local.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace copse {
namespace {

class LocalDeviceCollective final : public DeviceCollective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }

  Status all_reduce_sum(float*, std::size_t, Stream) override { return status(); }
  Status all_reduce_sum(Bf16*, std::size_t, Stream) override { return status(); }
  Status all_reduce_sum(std::uint64_t*, std::size_t, Stream) override { return status(); }
  Status all_gather(const void* mine, void* all, std::size_t bytes, Stream stream) override {
    COPSE_RETURN_IF_ERROR(status());
    if (mine == all || bytes == 0) return {};
    const cudaError_t error = cudaMemcpyAsync(all, mine, bytes, cudaMemcpyDeviceToDevice, stream);
    if (error == cudaSuccess) return {};
    return Error{ErrorCode::io, "device",
                 std::string("copying on the device: ") + cudaGetErrorString(error)};
  }

  Status status() override {
    if (!aborted_.load(std::memory_order_relaxed)) return {};
    return Error{ErrorCode::aborted, "collective", "the group was aborted"};
  }
  void abort() noexcept override { aborted_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<DeviceCollective> make_local_device_collective() {
  return std::make_unique<LocalDeviceCollective>();
}

}  // namespace copse
