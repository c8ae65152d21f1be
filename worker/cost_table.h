#pragma once
// What a decode step of one sequence costs against its draft nodes, measured once before `ready`:
// where the draft policy starts from. It is also the warm-up.
#include <cstdint>
#include <functional>

#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_worker.h"

namespace copse {

// Runs one plan and says how long it took, in µs.
using TimedStep = std::function<Result<std::uint32_t>(const StepPlan&)>;

// Runs the same plans on every rank, so every rank must call it. Uses slot 0 and the first pages,
// and leaves them as new. Steps with 0 nodes alone if nothing drafts. The wall time of a step is
// the least of a few: what the machine can do, not what else it did meanwhile.
Result<Bounded<StepCost, 32>> measure_costs(const TimedStep& run, int context_tokens, bool drafts);

}  // namespace copse
