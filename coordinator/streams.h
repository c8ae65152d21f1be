#pragma once
// Step 9, the coordinator's end: tokens and endings to the gateways, in order and without a gap. A
// slow client pauses its own sequence and nobody else's.
#include <vector>

#include "coordinator/request_table.h"
#include "scheduler/scheduler.h"
#include "transport/actor/actor.h"

namespace copse {

class Streams {
 public:
  Streams(Link& gateways, RequestTable& requests, Scheduler& scheduler, const Clock& clock)
      : link_(gateways), requests_(requests), scheduler_(scheduler), clock_(clock) {}

  void publish(const Committed& committed);
  void publish(const Finished& finished);
  void publish(const std::vector<Finished>& finished);

  // What the gateway said of its slow clients; streams that it does not list have caught up.
  void on_backlogs(const PeerId& gateway, const GatewayHeartbeat& heartbeat);
  // Sends what did not fit before, and returns the streams that have been blocked for too long.
  std::vector<SequenceId> on_tick(Instant now);

 private:
  void flush(ClientRequest& request);
  void judge(ClientRequest& request);

  Link& link_;
  RequestTable& requests_;
  Scheduler& scheduler_;
  const Clock& clock_;
};

}  // namespace copse
