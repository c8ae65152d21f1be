#pragma once
// Marks inline functions that kernels of a GPU call too. Their arithmetic must be a fixed list of
// IEEE operations: multiply() and add() are never fused into one, which a compiler for a GPU would
// do on its own; where fusing is wanted, write std::fma.

#ifdef __CUDACC__
#define COPSE_HOST_DEVICE __host__ __device__
#else
#define COPSE_HOST_DEVICE
#endif

namespace copse {

COPSE_HOST_DEVICE inline double multiply(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

COPSE_HOST_DEVICE inline double add(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

}  // namespace copse
