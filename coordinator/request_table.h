#pragma once
// Step 2, the client's side: which gateway asked for which sequence, and what it has still to be
// told.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "scheduler/sequence.h"
#include "transport/actor/actor.h"
#include "transport/messages/to_gateway.h"

namespace copse {

struct ClientRequest {
  SequenceId sequence = 0;
  PeerId gateway;
  RequestId request = 0;
  std::deque<Tokens> outbox;                // did not fit the gateway's queue yet
  std::optional<RequestFinished> finished;  // said after the outbox
  std::uint32_t backlog = 0;                // events that wait in the gateway, as it said last
  std::optional<Instant> blocked_since;     // it cannot take more

  bool settled() const { return outbox.empty() && !finished; }
};

class RequestTable {
 public:
  // None: this gateway has an open request of that name.
  ClientRequest* add(const PeerId& gateway, RequestId request);
  ClientRequest* find(SequenceId sequence);
  const ClientRequest* find(SequenceId sequence) const;
  ClientRequest* find(const PeerId& gateway, RequestId request);
  void erase(SequenceId sequence);
  std::vector<SequenceId> of(const PeerId& gateway) const;
  std::vector<SequenceId> all() const;
  std::size_t size() const { return requests_.size(); }

 private:
  SequenceId next_ = 1;
  std::map<SequenceId, ClientRequest> requests_;
  std::map<std::pair<PeerId, RequestId>, SequenceId> by_name_;
};

}  // namespace copse
