#pragma once
// A block's stream of weights: stages of shared memory that a warp of their own fills by bulk
// copies, several ahead of the warps that multiply. A stage has a slot for each of these. Weights
// do not depend on activations, so the stream runs on across the barrier between the two products.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/moe_experts/expert_layout.h"
#include "kernels/moe_experts/moe_warps.h"

namespace copse::kernels::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where a stage's bytes are there (full), and where all warps have read them (empty).
template <ExpertCodec kCodec>
struct RingMemory {
  static constexpr int stages = 4;
  static constexpr int slot_bytes = stage_blocks(kCodec) * expert_layout::block_bytes(kCodec);
  static constexpr int stage_bytes = multiply_warps * slot_bytes;
  static constexpr int values_bytes = stages * stage_bytes;
  static constexpr int barrier_bytes = 2 * stages * 8;

  std::byte* values;
  std::uint32_t full;
  std::uint32_t empty;

  __device__ RingMemory(std::byte* value_memory, std::byte* barrier_memory)
      : values(value_memory), full(shared_address(barrier_memory)), empty(full + stages * 8) {}
  // Once, by one thread; a block's barrier must follow.
  __device__ void initialize() const {
    for (int i = 0; i < stages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * i),
                   "n"(multiply_warps)
                   : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
};

__device__ inline void wait_barrier(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred here;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 here, [%1], %2;\n"
        "selp.u32 %0, 1, 0, here;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// What a multiplying warp sees.
template <ExpertCodec kCodec>
class WeightRing {
 public:
  __device__ WeightRing(const RingMemory<kCodec>& memory, int warp, int lane)
      : values_(memory.values + warp * Memory::slot_bytes),
        full_(memory.full),
        empty_(memory.empty),
        lane_(lane) {}

  // This warp's slot of the oldest stage, when it is there.
  __device__ const std::byte* wait() const {
    wait_barrier(full_ + 8 * stage_, parity_);
    return values_ + stage_ * Memory::stage_bytes;
  }
  // Every warp gives back every stage.
  __device__ void release() {
    __syncwarp();
    if (lane_ == 0) {
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty_ + 8 * stage_)
                   : "memory");
    }
    stage_ = stage_ + 1 == Memory::stages ? 0 : stage_ + 1;
    parity_ ^= stage_ == 0 ? 1u : 0u;
  }

 private:
  using Memory = RingMemory<kCodec>;

  const std::byte* values_;
  std::uint32_t full_;
  std::uint32_t empty_;
  int lane_;
  int stage_ = 0;
  std::uint32_t parity_ = 0;
};

// What the fetching warp sees.
template <ExpertCodec kCodec>
class WeightFetch {
 public:
  __device__ WeightFetch(const RingMemory<kCodec>& memory, int lane)
      : values_(shared_address(memory.values)),
        full_(memory.full),
        empty_(memory.empty),
        lane_(lane) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }
  // The next stage is one run of memory from its beginning on.
  __device__ void run(const std::byte* from, int bytes) {
    wait_barrier(empty_ + 8 * stage_, parity_);
    if (lane_ == 0) {
      expect(bytes);
      copy(0, from, bytes);
    }
    advance();
  }
  // Lane i < multiply_warps fills slot i of the next stage, `bytes` may be 0.
  __device__ void slots(const std::byte* from, int bytes) {
    const unsigned all = __reduce_add_sync(0xffffffffu, static_cast<unsigned>(bytes));
    wait_barrier(empty_ + 8 * stage_, parity_);
    if (lane_ == 0) expect(static_cast<int>(all));
    __syncwarp();
    if (bytes > 0) copy(lane_ * Memory::slot_bytes, from, bytes);
    advance();
  }

 private:
  using Memory = RingMemory<kCodec>;

  __device__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_ + 8 * stage_),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void copy(int offset, const std::byte* from, int bytes) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(values_ + stage_ * Memory::stage_bytes + offset),
        "l"(from), "r"(bytes), "r"(full_ + 8 * stage_), "l"(policy_)
        : "memory");
  }
  __device__ void advance() {
    stage_ = stage_ + 1 == Memory::stages ? 0 : stage_ + 1;
    parity_ ^= stage_ == 0 ? 1u : 0u;
  }

  std::uint32_t values_;
  std::uint32_t full_;
  std::uint32_t empty_;
  int lane_;
  std::uint64_t policy_;
  int stage_ = 0;
  std::uint32_t parity_ = 1;  // a new barrier counts as one whose last phase is over
};

}  // namespace copse::kernels::cuda
