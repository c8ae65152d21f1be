#include "kernels/common/cuda/device_memory.h"

#include "kernels/common/cuda/testing.h"

namespace copse::kernels::cuda {
namespace {

using DeviceMemoryTest = testing::CudaTest;

TEST_F(DeviceMemoryTest, WhatIsWrittenIsRead) {
  const std::vector<int> values = {3, 1, 4, 1, 5};
  EXPECT_EQ(testing::download(testing::upload(values)), values);
}

TEST_F(DeviceMemoryTest, MoreThanThereIsIsAnErrorAndNotTheEnd) {
  const auto refused = DeviceMemory::allocate(std::size_t{1} << 50);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  cudaGetLastError();
  EXPECT_TRUE(DeviceMemory::allocate(16).ok());
}

TEST(DeviceArena, PartsAreAlignedAndDoNotOverlap) {
  DeviceArena arena;
  const std::size_t first = arena.reserve("first", 10);
  const std::size_t second = arena.reserve("second", 300);
  EXPECT_EQ(arena.parts()[first].offset, 0u);
  EXPECT_EQ(arena.parts()[second].offset, 256u);
  EXPECT_EQ(arena.bytes(), 256u + 512u);
}

TEST(OpenDevice, WithoutAGpuOneSentenceSaysSo) {
  if (has_device()) {
    EXPECT_FALSE(open_device(1000).ok());
    return;
  }
  const auto device = open_device(0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::unavailable);
  EXPECT_NE(device.error().message.find("no "), std::string::npos);
}

}  // namespace
}  // namespace copse::kernels::cuda
