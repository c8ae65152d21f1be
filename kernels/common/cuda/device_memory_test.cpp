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
  char* first = nullptr;
  float* second = nullptr;
  arena.place("first", 10, first);
  arena.place("second", 75, second);
  ASSERT_EQ(arena.parts().size(), 2u);
  EXPECT_EQ(arena.parts()[0].offset, 0u);
  EXPECT_EQ(arena.parts()[1].offset, 256u);
  EXPECT_EQ(arena.bytes(), 256u + 512u);
}

TEST_F(DeviceMemoryTest, AnArenaSetsItsPointersAndIsZero) {
  DeviceArena arena;
  float* first = nullptr;
  float* second = nullptr;
  arena.place("first", 1, first);
  arena.place("second", 2, second);
  ASSERT_TRUE(arena.allocate().ok());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(second - first, 64);
  std::vector<float> values = {1, 2};
  ASSERT_TRUE(copy_to_host(values.data(), second, 8).ok());
  EXPECT_EQ(values, (std::vector<float>{0, 0}));
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
