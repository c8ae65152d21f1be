#include "coordinator/step_loop.h"

namespace copse {
namespace {

// Adds the time of its scope.
class Stopwatch {
 public:
  Stopwatch(const Clock& clock, Duration& sum) : clock_(clock), sum_(sum), start_(clock.now()) {}
  ~Stopwatch() { sum_ += clock_.now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  const Clock& clock_;
  Duration& sum_;
  Instant start_;
};

}  // namespace

void StepLoop::advance() {
  while (workers_.ready()) {
    const auto plan = scheduler_.next_plan(clock_.now());  // 3 who runs, which pages, what drafts
    if (!plan) return;
    workers_.send(*plan);  // 4-7 one round on every rank
  }
}

void StepLoop::on(const PeerId& from, const StepResult& result) {
  const Stopwatch watch(clock_, control_);
  const auto agreed = workers_.agreed(from, result);  // 8 equal digests of all ranks, this epoch
  if (!agreed) return;
  const auto committed = scheduler_.commit(*agreed, clock_.now());  //   tokens and pages kept
  if (!committed.ok()) return workers_.fail("a result of all ranks: " + committed.error().message);
  advance();                     //   the device waits for the next plan; clients can wait for us
  streams_.publish(*committed);  // 9 to the gateways
}

std::uint64_t StepLoop::control_us() const {
  return static_cast<std::uint64_t>(control_.count() / 1000);
}

}  // namespace copse
