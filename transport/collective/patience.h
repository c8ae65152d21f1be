#pragma once
// How a rank waits before it sleeps. Sleeping and being woken costs about four times what the rest
// of a small call does, so a waiter first spins (if each rank has a core), then gives its core away
// a few times: with more ranks than cores the next one on the core is usually a rank that has not
// come yet. But a yield forfeits the rank's slice: beside a foreign program that never sleeps it
// costs milliseconds. So a yield that took long turns yielding off for a while, longer each time.
#include <sched.h>

#include <algorithm>

#include "base/clock.h"

namespace copse {

class Patience {
 public:
  explicit Patience(Duration spin) : spin_(spin) {}

  // Returns when `done()` holds or it is time to sleep.
  template <class Done>
  void wait(Done done) {
    if (spin_ > Duration{} && spin_until(done)) return;
    if (calls_without_yield_ > 0) {
      --calls_without_yield_;
      return;
    }
    for (int i = 0; i < yields_max; ++i) {
      const Instant before = clock_.now();
      sched_yield();
      if (clock_.now() - before > slow_yield) {
        calls_without_yield_ = penalty_;
        penalty_ = std::min(2 * penalty_, penalty_max);
        return;
      }
      if (done()) break;
    }
    penalty_ = std::max(penalty_ - 1, penalty_min);
  }

 private:
  static constexpr int yields_max = 8;  // more gained nothing: README.md
  // A scheduler's slice; peers that compute this long between calls make a wake-up cheap anyway.
  static constexpr Duration slow_yield = milliseconds(1);
  static constexpr int penalty_min = 256;  // calls
  static constexpr int penalty_max = 1 << 14;

  template <class Done>
  bool spin_until(Done done) {
    const Instant end = clock_.now() + spin_;
    while (!done() && clock_.now() < end) {
      for (int i = 0; i < 16; ++i) pause_core();
    }
    return done();
  }

  static void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  SteadyClock clock_;
  Duration spin_;
  int calls_without_yield_ = 0;
  int penalty_ = penalty_min;
};

}  // namespace copse
