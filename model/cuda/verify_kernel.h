#pragma once
// The names that flags have for attention kernels.
#include <string_view>

#include "kernels/verify_attention/verify_attention_cuda.h"

namespace copse {

// "fast" and what is no name: the best that the device and the shape allow.
inline kernels::cuda::VerifyVersion verify_kernel(std::string_view name) {
  if (name == "portable") return kernels::cuda::VerifyVersion::portable;
  if (name == "naive") return kernels::cuda::VerifyVersion::naive;
  return kernels::cuda::VerifyVersion::automatic;
}

}  // namespace copse
