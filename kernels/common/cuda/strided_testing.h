#pragma once
// Device arrays of tests with poison before, behind and between their rows and heads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/common/cuda/testing.h"
#include "kernels/common/matrix.h"
#include "kernels/common/testing.h"

namespace copse::kernels::cuda::testing {

template <class T>
class Strided {
 public:
  // Gaps in elements, behind each head and each row. Fills with values of `inputs`.
  Strided(int rows, int heads, int dim, int head_gap, int row_gap, kernels::testing::Inputs& inputs)
      : rows_(rows), heads_(heads), dim_(dim), head_stride_(dim + head_gap) {
    row_stride_ = heads * head_stride_ + row_gap;
    host_.assign(static_cast<std::size_t>(rows * row_stride_ + 2 * guard), poison());
    for (int r = 0; r < rows; ++r) {
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < dim; ++i) at(r, h, i) = from_host_float<T>(inputs.next());
      }
    }
    device_ = upload(host_);
  }
  // All poison: for outputs.
  Strided(int rows, int heads, int dim, int head_gap, int row_gap)
      : rows_(rows), heads_(heads), dim_(dim), head_stride_(dim + head_gap) {
    row_stride_ = heads * head_stride_ + row_gap;
    host_.assign(static_cast<std::size_t>(rows * row_stride_ + 2 * guard), poison());
    device_ = upload(host_);
  }

  T* data() const { return device_.data() + guard; }
  std::int64_t row_stride() const { return row_stride_; }
  std::int64_t head_stride() const { return head_stride_; }
  int rows() const { return rows_; }

  // Values [rows][heads][dim] as float, without the gaps: those given in, or those on the device.
  std::vector<float> values() const { return packed(host_); }
  std::vector<float> results() const { return packed(download(device_)); }

  // True while the poison between and around the rows is what it was.
  bool intact() const {
    const std::vector<T> now = download(device_);
    std::vector<bool> inside(now.size(), false);
    each([&](std::size_t index) { inside[index] = true; });
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!inside[i] && bits(now[i]) != bits(poison())) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t guard = 64;
  static T poison() { return from_host_float<T>(std::numeric_limits<float>::quiet_NaN()); }
  static std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
  static std::uint32_t bits(Bf16 value) { return value.bits; }

  std::size_t index(int r, int h, int i) const {
    return static_cast<std::size_t>(guard + r * row_stride_ + h * head_stride_ + i);
  }
  T& at(int r, int h, int i) { return host_[index(r, h, i)]; }
  template <class Visit>
  void each(Visit visit) const {
    for (int r = 0; r < rows_; ++r) {
      for (int h = 0; h < heads_; ++h) {
        for (int i = 0; i < dim_; ++i) visit(index(r, h, i));
      }
    }
  }
  std::vector<float> packed(const std::vector<T>& from) const {
    std::vector<float> result;
    each([&](std::size_t at) { result.push_back(to_host_float(from[at])); });
    return result;
  }

  int rows_;
  int heads_;
  int dim_;
  std::int64_t head_stride_;
  std::int64_t row_stride_ = 0;
  std::vector<T> host_;
  DeviceBuffer<T> device_;
};

// A result that was computed in float32 with `terms` roundings of a sum of this magnitude, then
// rounded to T.
template <class T>
bool close(float actual, double expected, double magnitude, int terms) {
  constexpr double rounding = sizeof(T) == 2 ? 0x1p-8 : 0x1p-23;
  return std::abs(static_cast<double>(actual) - expected) <=
         std::abs(expected) * rounding + terms * 0x1p-24 * magnitude + 1e-37;
}

// Compares all values and tells of the first that differs.
template <class T>
::testing::AssertionResult all_close(const std::vector<float>& actual,
                                     const std::vector<float>& expected,
                                     const std::vector<float>& magnitudes, int terms) {
  if (actual.size() != expected.size()) return ::testing::AssertionFailure() << "other size";
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto magnitude = static_cast<double>(magnitudes.empty() ? expected[i] : magnitudes[i]);
    if (!close<T>(actual[i], expected[i], std::abs(magnitude), terms)) {
      return ::testing::AssertionFailure()
             << "first at " << i << " of " << actual.size() << ": " << actual[i] << " for "
             << expected[i] << ", magnitude " << magnitude;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace copse::kernels::cuda::testing
