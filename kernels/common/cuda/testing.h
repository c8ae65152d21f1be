#pragma once
// What tests of CUDA kernels share: they need a GPU, and say so where there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/device_memory.h"

namespace copse::kernels::cuda::testing {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "there is no GPU here";
    ASSERT_TRUE(open_device(0).ok());
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream stream() const { return stream_; }
  // Waits; a kernel that failed shows here.
  void synchronize() { ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  Stream stream_ = nullptr;
};

template <class T>
DeviceBuffer<T> upload(const std::vector<T>& values) {
  auto buffer = DeviceBuffer<T>::from(std::span<const T>(values));
  EXPECT_TRUE(buffer.ok());
  return std::move(buffer).value();
}
template <class T>
std::vector<T> download(const DeviceBuffer<T>& buffer) {
  auto values = buffer.read();
  EXPECT_TRUE(values.ok());
  return values.ok() ? std::move(values).value() : std::vector<T>();
}

template <class T>
T from_host_float(float value);
template <>
inline float from_host_float<float>(float value) {
  return value;
}
template <>
inline Bf16 from_host_float<Bf16>(float value) {
  return to_bf16(value);
}
inline float to_host_float(float value) {
  return value;
}
inline float to_host_float(Bf16 value) {
  return to_float(value);
}

// The values as T holds them, and the same back in float for the reference.
template <class T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const float value : values) result.push_back(from_host_float<T>(value));
  return result;
}
template <class T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> result;
  result.reserve(values.size());
  for (const T value : values) result.push_back(to_host_float(value));
  return result;
}

// ||actual - expected|| / ||expected||; NaN where anything is NaN, so that a comparison fails.
inline double relative_error(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size()) return std::nan("");
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-30);
}
// What the two modes may differ from a float32 reference.
template <class T>
constexpr double tolerance() {
  return sizeof(T) == 2 ? 1e-2 : 1e-5;
}

}  // namespace copse::kernels::cuda::testing
