#pragma once
// What computes steps, whatever the device: the executor's thread loads one and feeds it plans.
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_worker.h"

namespace copse {

// All calls from one thread, but for stage().
class StepEngine {
 public:
  virtual ~StepEngine() = default;

  // Begins a plan; on a GPU it returns before the plan is done. An error is a plan that does not
  // fit the held state, or the collective's: the held state is then worth nothing.
  virtual Status begin(const StepPlan& plan) = 0;
  // Waits for the oldest plan that was begun. The answer lacks epoch and step; tokens are filled in
  // by rank 0 alone.
  virtual Result<StepResult> finish() = 0;
  // Plans that may be begun and not finished.
  virtual int plans_at_once() const = 0;

  // What the group may use; costs are measured (cost_table.h), equal calls on every rank.
  virtual Result<WorkerReady> measure() = 0;
  // Names the running phase, from any thread.
  virtual const char* stage() const = 0;
};

// stage, bytes read, bytes in all.
using LoadObserver = std::function<void(const char*, std::uint64_t, std::uint64_t)>;

// Joins the group and loads the engine on the executor's thread.
class EngineLoader {
 public:
  virtual ~EngineLoader() = default;
  virtual Result<std::unique_ptr<StepEngine>> load(const LoadObserver& progress) = 0;
  // From any thread, at any time: a running collective, also one of the load, ends with an error.
  virtual void abort() noexcept = 0;
};

}  // namespace copse
