#pragma once
// Every kind of message there is. A kind names a struct, never code: an unknown number is refused.
#include <cstdint>

namespace copse {

enum class Kind : std::uint8_t {
  // to_coordinator.h
  register_worker = 1,
  load_progress = 2,
  worker_ready = 3,
  step_result = 4,
  worker_heartbeat = 5,
  worker_failed = 6,
  register_gateway = 16,
  submit = 17,
  cancel = 18,
  gateway_heartbeat = 19,
  // to_worker.h
  worker_welcome = 32,
  step_plan = 33,
  shutdown = 34,
  // to_gateway.h
  gateway_welcome = 48,
  request_refused = 49,
  tokens = 50,
  request_finished = 51,
  engine_status = 52,
};

// What happens when the receiver's queue is full. Each message declares its own.
enum class OnOverflow : std::uint8_t {
  end_epoch,       // the group is out of step: restart it (never dropped silently)
  close_peer,      // the peer is too slow to be served: it is disconnected
  pause_sequence,  // the sequence is not scheduled until there is room
  refuse,          // the sender is told, and tells its user
  drop,            // the next one carries everything this one did
};

}  // namespace copse
