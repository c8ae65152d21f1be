#pragma once
// Clusters of blocks that read each other's shared memory (compute capability 9.0). On older GPUs a
// block is its own cluster. Addresses are the 32-bit ones of shared memory.
#include <cstdint>

namespace copse::kernels::cuda {

// All threads of all blocks of the cluster; what they wrote to shared memory is seen behind it.
__device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

// Four floats at this block's address `local` (a multiple of 16), in block `rank` of the cluster.
__device__ inline float4 load_of_rank(std::uint32_t local, int rank) {
  float4 v;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(local), "r"(rank)
      : "memory");
#else
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(local)
               : "memory");
#endif
  return v;
}

}  // namespace copse::kernels::cuda
