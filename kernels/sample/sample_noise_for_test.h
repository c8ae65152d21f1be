#pragma once
// The device functions that sampling rests on, over many arguments at once.
#include <cstdint>

#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda::testing {

inline constexpr std::uint32_t noise_count = 1 << 20;

// noise: [noise_count] gumbel_from_word(first + i * step).
void exact_noise(std::uint32_t first, std::uint32_t step, float* noise, Stream stream);
// Bits of the largest |approximate_noise - gumbel_from_word| over all words; *largest is 0 before.
void largest_noise_error(unsigned* largest, Stream stream);
// [noise_count] exp_fixed(x).
void fixed_exponentials(const float* x, float* y, Stream stream);

}  // namespace copse::kernels::cuda::testing
