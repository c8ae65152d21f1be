// A communicator is non-blocking: its calls return while a thread of NCCL's is still at work, so
// that a peer that never comes costs the deadline and not for ever. It is set up, used and torn
// down under one lock; only the flag `aborted_` is read without it, by whoever waits.
#include "transport/collective/nccl_collective.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "base/limits.h"

namespace copse {
namespace {

static_assert(sizeof(ncclUniqueId) == std::tuple_size_v<NcclId>);

constexpr auto poll_interval = std::chrono::microseconds(20);

Error nccl_error(ncclResult_t result, const char* what) {
  return {ErrorCode::io, "collective", std::string(what) + ": " + ncclGetErrorString(result)};
}
Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return Error{ErrorCode::io, "device", std::string(what) + ": " + cudaGetErrorString(error)};
}
Error aborted_error() {
  return {ErrorCode::aborted, "collective", "the group was aborted"};
}

class NcclCollective final : public DeviceCollective {
 public:
  explicit NcclCollective(const NcclJoin& join)
      : rank_(join.rank), world_size_(join.world_size), timeout_(join.timeout) {}
  ~NcclCollective() override;

  Status start(const NcclId& id);

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  Status all_reduce_sum(float* values, std::size_t count, Stream stream) override {
    return all_reduce(values, count, ncclFloat32, stream);
  }
  Status all_reduce_sum(Bf16* values, std::size_t count, Stream stream) override {
    return all_reduce(values, count, ncclBfloat16, stream);
  }
  Status all_reduce_sum(std::uint64_t* values, std::size_t count, Stream stream) override {
    return all_reduce(values, count, ncclUint64, stream);
  }
  Status all_gather(const void* mine, void* all, std::size_t bytes, Stream stream) override {
    return call("all_gather",
                [&] { return ncclAllGather(mine, all, bytes, ncclUint8, communicator_, stream); });
  }

  Status status() override;
  void abort() noexcept override;

 private:
  Status all_reduce(void* values, std::size_t count, ncclDataType_t type, Stream stream) {
    return call("all_reduce", [&] {
      return ncclAllReduce(values, values, count, type, ncclSum, communicator_, stream);
    });
  }
  template <class Enqueue>
  Status call(const char* what, Enqueue enqueue);
  // Waits until NCCL's own thread is done with what was asked of it. The lock is held.
  Status settle(ncclResult_t result, const char* what);
  Status warm_up();
  Status warm_up_on(Stream stream, std::byte* memory);
  Status wait_for(Stream stream);
  void wait_to_abort();
  bool finalize();

  const int rank_;
  const int world_size_;
  const Duration timeout_;
  const SteadyClock clock_;

  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // null once it was aborted or could not be made
  std::atomic<bool> aborted_{false};

  // Aborting can wait for graphs to be destroyed, so a thread of its own does it, there from the
  // start since abort() may not fail.
  std::mutex aborter_mutex_;
  std::condition_variable aborter_woken_;
  bool closing_ = false;
  std::thread aborter_;
};

Status NcclCollective::start(const NcclId& id) {
  aborter_ = std::thread([this] { wait_to_abort(); });
  {
    const std::lock_guard lock(mutex_);
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    COPSE_RETURN_IF_ERROR(settle(
        ncclCommInitRankConfig(&communicator_, world_size_, unique, rank_, &config), "joining"));
  }
  return warm_up();
}

template <class Enqueue>
Status NcclCollective::call(const char* what, Enqueue enqueue) {
  if (aborted_.load()) return aborted_error();  // the aborter may hold the lock for long
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return aborted_error();
  return settle(enqueue(), what);
}

Status NcclCollective::settle(ncclResult_t result, const char* what) {
  const Instant deadline = clock_.now() + timeout_;
  while (result == ncclInProgress) {
    if (aborted_.load()) return aborted_error();
    if (clock_.now() > deadline) {
      return Error{ErrorCode::deadline, "collective",
                   std::string(what) + ": the other ranks did not come in time"};
    }
    std::this_thread::sleep_for(poll_interval);
    if (const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
        asked != ncclSuccess) {
      result = asked;
    }
  }
  if (result == ncclSuccess) return {};
  return nccl_error(result, what);
}

// Connections are made, and kernels loaded, by the first call of each kind.
Status NcclCollective::warm_up() {
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  COPSE_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  Status status = cuda_status(
      cudaMalloc(&memory, 64 * static_cast<std::size_t>(limits::world_size)), "cudaMalloc");
  if (status.ok()) status = warm_up_on(stream, memory);
  // After an error a kernel may still wait for its peers: freeing would wait for it.
  if (!status.ok()) {
    abort();
    return status;
  }
  cudaFree(memory);
  cudaStreamDestroy(stream);
  return {};
}

Status NcclCollective::warm_up_on(Stream stream, std::byte* memory) {
  COPSE_RETURN_IF_ERROR(cuda_status(
      cudaMemsetAsync(memory, 0, 64 * static_cast<std::size_t>(limits::world_size), stream),
      "cudaMemset"));
  COPSE_RETURN_IF_ERROR(all_reduce_sum(reinterpret_cast<float*>(memory), 8, stream));
  COPSE_RETURN_IF_ERROR(all_reduce_sum(reinterpret_cast<Bf16*>(memory), 8, stream));
  COPSE_RETURN_IF_ERROR(all_reduce_sum(reinterpret_cast<std::uint64_t*>(memory), 8, stream));
  COPSE_RETURN_IF_ERROR(all_gather(memory + 64 * rank_, memory, 64, stream));
  return wait_for(stream);
}

Status NcclCollective::wait_for(Stream stream) {
  const Instant deadline = clock_.now() + timeout_;
  for (;;) {
    const cudaError_t done = cudaStreamQuery(stream);
    if (done != cudaErrorNotReady) return cuda_status(done, "the first calls");
    COPSE_RETURN_IF_ERROR(status());
    if (clock_.now() > deadline) {
      return Error{ErrorCode::deadline, "collective",
                   "the first calls: the other ranks did not come in time"};
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

Status NcclCollective::status() {
  if (aborted_.load()) return aborted_error();
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return aborted_error();
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
  if (asked != ncclSuccess) return nccl_error(asked, "status");
  if (result != ncclSuccess && result != ncclInProgress) return nccl_error(result, "status");
  return {};
}

void NcclCollective::abort() noexcept {
  aborted_.store(true);
  // The lock, if only for a moment: the aborter is either before its test or asleep.
  { const std::lock_guard lock(aborter_mutex_); }
  aborter_woken_.notify_all();
}

void NcclCollective::wait_to_abort() {
  {
    std::unique_lock lock(aborter_mutex_);
    aborter_woken_.wait(lock, [this] { return aborted_.load() || closing_; });
  }
  if (!aborted_.load()) return;
  const std::lock_guard lock(mutex_);  // whoever holds it sees the flag and lets go
  // Its first act tells the kernels to end. Then it waits for the streams and graphs.
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

// Leaves in agreement with the peers, who may still read what this rank sent.
bool NcclCollective::finalize() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return true;
  if (!settle(ncclCommFinalize(communicator_), "leaving").ok()) return false;
  const ncclResult_t result = ncclCommDestroy(communicator_);
  communicator_ = nullptr;
  return result == ncclSuccess || result == ncclInProgress;
}

NcclCollective::~NcclCollective() {
  if (!aborted_.load() && !finalize()) abort();
  {
    const std::lock_guard lock(aborter_mutex_);
    closing_ = true;
  }
  aborter_woken_.notify_all();
  if (aborter_.joinable()) aborter_.join();
}

void set_default(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 0);
}

}  // namespace

void set_nccl_environment(int rank, bool share_gpu) {
  set_default("NCCL_ALGO", "Ring");
  set_default("NCCL_NVLS_ENABLE", "0");
  set_default("NCCL_SOCKET_IFNAME", "lo");
  if (!share_gpu) return;
  set_default("NCCL_IB_DISABLE", "1");
  set_default("NCCL_HOSTID", "copse-" + std::to_string(rank) + "-" + std::to_string(getpid()));
}

Result<NcclId> make_nccl_id() {
  ncclUniqueId unique;
  const ncclResult_t result = ncclGetUniqueId(&unique);
  if (result != ncclSuccess) return nccl_error(result, "making an id");
  NcclId id;
  std::memcpy(id.data(), &unique, id.size());
  return id;
}

Result<std::unique_ptr<DeviceCollective>> join_nccl(const NcclJoin& join) {
  CHECK(join.world_size > 0 && join.world_size <= limits::world_size);
  CHECK(join.rank >= 0 && join.rank < join.world_size);
  auto collective = std::make_unique<NcclCollective>(join);
  Status status = collective->start(join.id);
  if (!status.ok()) {
    collective->abort();
    return std::move(status).error();
  }
  return std::unique_ptr<DeviceCollective>(std::move(collective));
}

}  // namespace copse
