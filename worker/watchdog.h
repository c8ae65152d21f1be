#pragma once
// Notices a step (or a load) that takes too long. Pure: told the time, it says what to do. The
// actor asks it every tick; the executor only stores where it is (StepExecutor::stage).
#include "base/clock.h"

namespace copse {

class Watchdog {
 public:
  enum class Action {
    none,
    log,    // past the soft deadline, once per step
    abort,  // past the hard deadline, once: end the collective
    exit,   // the abort did not help within `grace`
  };
  static constexpr Duration grace = milliseconds(1000);

  void start(Instant now, Duration soft, Duration hard) {
    *this = Watchdog();
    running_ = true;
    started_ = now;
    soft_ = soft;
    hard_ = hard;
  }
  void stop() { running_ = false; }

  bool running() const { return running_; }
  Duration running_for(Instant now) const { return running_ ? now - started_ : Duration{}; }

  Action check(Instant now) {
    if (!running_) return Action::none;
    const Duration age = now - started_;
    if (age > hard_ + grace) return Action::exit;
    if (age > hard_ && !aborted_) {
      aborted_ = true;
      return Action::abort;
    }
    if (age > soft_ && !logged_) {
      logged_ = true;
      return Action::log;
    }
    return Action::none;
  }

 private:
  bool running_ = false;
  bool logged_ = false;
  bool aborted_ = false;
  Instant started_{};
  Duration soft_{};
  Duration hard_{};
};

}  // namespace copse
