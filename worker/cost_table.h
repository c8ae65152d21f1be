#pragma once
// What a decode step of one sequence costs against its draft nodes, measured once before `ready`:
// where the draft policy starts from. It is also the warm-up.
#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "worker/round.h"

namespace copse {

// Runs the same plans on every rank, so every rank must call it. Uses slot 0 and the first pages,
// and leaves them as new. Steps with 0 nodes alone if nothing drafts. The wall time of a step is
// the least of a few: what the machine can do, not what else it did meanwhile.
Result<Bounded<StepCost, 32>> measure_costs(Round& round, const SlotTable& slots, bool drafts);

}  // namespace copse
