#pragma once
// Steps 4-7, seen from the worker's actor: what blocks (forward passes, collectives, file reads)
// lives behind this interface on a thread of its own, so that heartbeats go on during a step. The
// simulator puts a model of it here.
#include <string>

#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_worker.h"

namespace copse {

// Called on the actor's own thread.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void on_load_progress(const LoadProgress& progress) = 0;
  virtual void on_ready(const WorkerReady& ready) = 0;
  virtual void on_step_done(const StepResult& result) = 0;
  // Nothing works any more. `permanent`: a restart would fail the same way (a bad checkpoint).
  virtual void on_failed(const Error& error, bool permanent) = 0;
};

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  // Load, join the collective, warm up, measure the cost table; then on_ready. `sink` is told
  // everything from now on and must outlive the executor's work.
  virtual void start(std::uint32_t epoch, StepSink& sink) = 0;
  // At most limits::plans_in_flight that are not answered; run in order.
  virtual void submit(const StepPlan& plan) = 0;
  // From any thread: a running collective returns with an error; on_failed follows.
  virtual void abort() = 0;
  // Where the running step is, for the log of a step that is late. From any thread.
  virtual const char* stage() const { return "step"; }
};

}  // namespace copse
