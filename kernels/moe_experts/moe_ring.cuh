#pragma once
// A warp's own stream of weights: blocks of expert_layout.h come into a ring of slots in shared
// memory by bulk copies that the warp itself asks for, several ahead of what it multiplies. Warps
// share nothing, so none waits for another; and since weights do not depend on activations, the
// stream runs on across the barrier between the two products.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/moe_experts/expert_layout.h"

namespace copse::kernels::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Blocks of one copy: about 2 KB.
template <ExpertCodec kCodec>
constexpr int stage_blocks() {
  if (kCodec == ExpertCodec::fp8_block || kCodec == ExpertCodec::f32) return 1;
  return kCodec == ExpertCodec::bf16 ? 2 : 4;
}

template <ExpertCodec kCodec>
class WeightRing {
 public:
  static constexpr int slots = 4;
  static constexpr int block_size = expert_layout::block_bytes(kCodec);
  static constexpr int slot_bytes = stage_blocks<kCodec>() * block_size;
  static constexpr int warp_bytes = slots * slot_bytes;

  // `memory` [warp_bytes] and `barriers` [slots] are this warp's.
  __device__ WeightRing(std::byte* memory, std::uint64_t* barriers, int lane)
      : memory_(shared_address(memory)),
        barriers_(shared_address(barriers)),
        generic_(memory),
        lane_(lane) {
    if (lane == 0) {
      for (int i = 0; i < slots; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8 * i) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
  }

  // Asks for the next stage, if there is one. feed.next(from, blocks) names the next run of blocks,
  // or is false.
  template <class Feed>
  __device__ void fetch(Feed& feed) {
    while (left_ == 0) {
      if (!feed.next(from_, left_)) return;
    }
    const int blocks = min(left_, stage_blocks<kCodec>());
    const std::uint32_t slot = fetched_ % slots;
    if (lane_ == 0) copy(slot, blocks * block_size);
    from_ += blocks * block_size;
    left_ -= blocks;
    ++fetched_;
  }
  // The oldest stage, when it is there.
  __device__ const std::byte* wait() const {
    const std::uint32_t slot = used_ % slots;
    const std::uint32_t parity = used_ / slots & 1u;
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred here;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 here, [%1], %2;\n"
          "selp.u32 %0, 1, 0, here;\n"
          "}\n"
          : "=r"(done)
          : "r"(barriers_ + 8 * slot), "r"(parity)
          : "memory");
    }
    return generic_ + slot * slot_bytes;
  }
  // Gives its slot to the next.
  template <class Feed>
  __device__ void release(Feed& feed) {
    ++used_;
    __syncwarp();
    fetch(feed);
  }

 private:
  __device__ void copy(std::uint32_t slot, int bytes) const {
    const std::uint32_t barrier = barriers_ + 8 * slot;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(memory_ + slot * slot_bytes),
        "l"(from_), "r"(bytes), "r"(barrier), "l"(policy_)
        : "memory");
  }

  std::uint32_t memory_;
  std::uint32_t barriers_;
  const std::byte* generic_;
  int lane_;
  std::uint64_t policy_;
  const std::byte* from_ = nullptr;
  int left_ = 0;
  std::uint32_t fetched_ = 0;
  std::uint32_t used_ = 0;
};

}  // namespace copse::kernels::cuda
