#pragma once
// What kernel tests share: backends to run the same inputs through, input patterns, and memory
// whose unused parts are poison.
#include <hwy/targets.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/matrix.h"
#include "kernels/common/targets.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels::testing {

// The plain reference, or the vectorized code on one instruction set.
struct Backend {
  std::string name;
  bool reference = false;
  std::int64_t target = 0;  // Highway's bit
  int threads = 1;
};
inline std::ostream& operator<<(std::ostream& out, const Backend& b) {
  return out << b.name;
}

// Those that this machine can run. The reference is the first.
inline std::vector<Backend> backends() {
  std::vector<Backend> result = {{"ref", true, 0, 1}};
  const std::int64_t here = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = here; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    result.push_back({hwy::TargetName(target), false, target, 1});
  }
  result.push_back({"two_threads", false, here & -here, 2});
  return result;
}

// Makes Highway's dispatch choose the backend's instruction set while it lives.
class UseBackend {
 public:
  explicit UseBackend(const Backend& backend) : pool(backend.threads) {
    if (backend.target != 0) select(backend.target);
  }
  ~UseBackend() { select(0); }
  UseBackend(const UseBackend&) = delete;
  UseBackend& operator=(const UseBackend&) = delete;

  ThreadPool pool;

 private:
  static void select(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

enum class Fill { ones, ramp, random, adversarial };
inline constexpr Fill fills[] = {Fill::ones, Fill::ramp, Fill::random, Fill::adversarial};

class Inputs {
 public:
  explicit Inputs(Fill fill, std::uint64_t seed = 1) : fill_(fill), random_(seed) {}

  // Magnitudes of about 1; adversarial ones cancel, spread over 2^20 and hold zeros and denormals.
  float next() {
    const auto index = static_cast<int>(count_++);
    if (fill_ == Fill::ones) return 1.0f;
    if (fill_ == Fill::ramp) return static_cast<float>(index % 97 - 48) / 64.0f;
    const float uniform = static_cast<float>(static_cast<std::int64_t>(random_.below(1 << 24))) /
                              static_cast<float>(1 << 23) -
                          1.0f;
    if (fill_ == Fill::random) return uniform;
    switch (random_.below(8)) {
      case 0:
        return uniform * 1024.0f;
      case 1:
        return uniform / 1024.0f;
      case 2:
        return 0.0f;
      case 3:
        return -0.0f;
      case 4:
        return uniform * 1e-40f;
      case 5:
        return last_ = -last_;
      default:
        return last_ = uniform;
    }
  }

 private:
  Fill fill_;
  SeededRandom random_;
  std::uint64_t count_ = 0;
  float last_ = 1.0f;
};

inline constexpr float nan_poison = std::numeric_limits<float>::quiet_NaN();
inline constexpr float huge_poison = 1e30f;
inline constexpr float poisons[] = {nan_poison, huge_poison};

// A matrix with poison between its rows, before and after it.
class Guarded {
 public:
  Guarded(int rows, int columns, float poison, int padding = 5)
      : rows_(rows),
        columns_(columns),
        stride_(columns + padding),
        poison_(poison),
        data_(static_cast<std::size_t>(rows * stride_ + 2 * guard), poison) {}

  Matrix view() { return {data_.data() + guard, rows_, columns_, stride_}; }
  void fill(Inputs& inputs) {
    for (int r = 0; r < rows_; ++r) {
      for (int c = 0; c < columns_; ++c) view().row(r)[c] = inputs.next();
    }
  }
  // True while nothing outside the rows was written.
  bool intact() const {
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const auto offset = static_cast<std::ptrdiff_t>(i) - guard;
      const bool inside = offset >= 0 && offset < rows_ * stride_ && offset % stride_ < columns_;
      const bool same =
          std::bit_cast<std::uint32_t>(data_[i]) == std::bit_cast<std::uint32_t>(poison_);
      if (!inside && !same) return false;
    }
    return true;
  }

 private:
  static constexpr int guard = 32;
  int rows_;
  int columns_;
  std::ptrdiff_t stride_;
  float poison_;
  std::vector<float> data_;
};

// Equal bits, but any NaN equals any NaN and zeros of both signs are equal.
inline bool same(float a, float b) {
  return a == b || (a != a && b != b);
}

}  // namespace copse::kernels::testing
