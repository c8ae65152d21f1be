#pragma once
// Time is passed in: actors read a Clock, never the system's. Monotonic: the wall clock is for logs
// alone.
#include <chrono>
#include <cstdint>

namespace copse {

using Duration = std::chrono::nanoseconds;

struct ClockTag {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  static constexpr bool is_steady = true;
};
using Instant = std::chrono::time_point<ClockTag, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

// The process's clock: CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Instant now() const override {
    return Instant(std::chrono::steady_clock::now().time_since_epoch());
  }
};

// For tests and the simulator: time moves when told to.
class ManualClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void set(Instant to) { now_ = to; }

 private:
  Instant now_{};
};

inline constexpr Duration milliseconds(std::int64_t count) {
  return std::chrono::milliseconds(count);
}
inline double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace copse
