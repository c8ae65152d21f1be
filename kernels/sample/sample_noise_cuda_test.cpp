// The noise of every word: exact on host and GPU alike, and near enough where it is approximate.
#include <bit>
#include <cstdio>
#include <vector>

#include "base/noise.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/common/exp.h"
#include "kernels/sample/sample_noise_for_test.h"

namespace copse::kernels::cuda {
namespace {

using NoiseCuda = testing::CudaTest;

TEST_F(NoiseCuda, HasTheBitsOfTheHosts) {
  constexpr std::uint32_t count = testing::noise_count;
  const auto device = testing::upload(std::vector<float>(count));
  for (const std::uint32_t first : {0u, 0x80000000u, 0xFFFFFFFFu - (count - 1), 12345u}) {
    const std::uint32_t step = first == 12345u ? 4093 : 1;
    testing::exact_noise(first, step, device.data(), stream());
    synchronize();
    const std::vector<float> noise = testing::download(device);
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(noise[i], gumbel_from_word(first + i * step)) << "word " << first + i * step;
    }
  }
}

TEST_F(NoiseCuda, ApproximatesEveryWordWithinItsBound) {
  const auto device = testing::upload(std::vector<unsigned>{0});
  testing::largest_noise_error(device.data(), stream());
  synchronize();
  const unsigned bits = testing::download(device)[0];
  const float error = std::bit_cast<float>(bits);
  std::printf("largest error of the approximate noise: %g\n", static_cast<double>(error));
  EXPECT_GT(error, 0.0f);
  EXPECT_LE(error, 5e-5f) << "half of noise_error in sample_noise.cuh, so that there is room";
}

TEST_F(NoiseCuda, ExponentialsHaveTheBitsOfTheHosts) {
  constexpr std::uint32_t count = testing::noise_count;
  std::vector<float> x;
  for (std::uint32_t i = 0; i < count; ++i) {
    x.push_back(-90.0f + 180.0f * static_cast<float>(i) / static_cast<float>(count));
  }
  const auto from = testing::upload(x);
  const auto to = testing::upload(std::vector<float>(count));
  testing::fixed_exponentials(from.data(), to.data(), stream());
  synchronize();
  const std::vector<float> y = testing::download(to);
  for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(y[i], exp_fixed(x[i])) << x[i];
}

}  // namespace
}  // namespace copse::kernels::cuda
