#pragma once
// Bugs that the simulator must find. In every shipped build planted() is the constant false;
// tests/sim compiles these sources once more with COPSE_PLANTED_BUGS and switches on one at a time.
#include <cstdint>

namespace copse {

enum class PlantedBug : std::uint8_t {
  none,
  no_epoch_check,         // messages of any epoch and incarnation count
  digests_not_compared,   // a step is committed whatever the ranks say
  double_free,            // a page that comes back is free twice
  lost_cancel,            // a cancelled request goes on
  dropped_tokens,         // a full gateway queue loses tokens
  restart_off_by_one,     // after a restart the last delivered token is drawn again
  forgotten_finish,       // the end of a request that finished in its prefill is not told
  leaked_slot,            // a cancelled sequence keeps its slot
  orphans_kept,           // requests of a lost gateway go on
  restart_forgets_drawn,  // after a restart min_tokens counts from zero
  pause_forgotten,        // a slow stream is scheduled on
  restart_loses_one,      // after a restart the youngest sequence is not queued again
};

#ifdef COPSE_PLANTED_BUGS
inline PlantedBug planted_bug = PlantedBug::none;
inline bool planted(PlantedBug bug) {
  return planted_bug == bug;
}
#else
constexpr bool planted(PlantedBug) {
  return false;
}
#endif

}  // namespace copse
