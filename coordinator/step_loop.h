#pragma once
// The step loop: the architecture's diagram in code, one plan ahead of the results.
#include "coordinator/streams.h"
#include "coordinator/worker_group.h"
#include "scheduler/scheduler.h"

namespace copse {

class StepLoop {
 public:
  StepLoop(Scheduler& scheduler, WorkerGroup& workers, Streams& streams, const Clock& clock)
      : scheduler_(scheduler), workers_(workers), streams_(streams), clock_(clock) {}

  // Sends plans while there is something to do and room ahead.
  void advance();
  void on(const PeerId& from, const StepResult& result);
  std::uint64_t control_us() const;  // spent here, in all steps

 private:
  Scheduler& scheduler_;
  WorkerGroup& workers_;
  Streams& streams_;
  const Clock& clock_;
  Duration control_{};
};

}  // namespace copse
