#pragma once
// The gateways that are connected: who they are, whether they live, and what all of them are told.
#include <map>
#include <vector>

#include "base/clock.h"
#include "transport/actor/actor.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"

namespace copse {

class Gateways {
 public:
  Gateways(std::string build, Link& link, const Clock& clock)
      : build_(std::move(build)), link_(link), clock_(clock) {}

  // False: it was refused and disconnected.
  bool admit(const PeerId& from, const RegisterGateway& message, const GatewayWelcome& welcome);
  bool known(const PeerId& gateway) const { return last_heard_.contains(gateway); }
  void heard(const PeerId& gateway);
  void remove(const PeerId& gateway);
  // Those that have been silent for too long.
  std::vector<PeerId> silent(Instant now) const;
  std::size_t size() const { return last_heard_.size(); }

  void welcome_all(const GatewayWelcome& welcome);
  void tell_all(const EngineStatus& status);

 private:
  std::string build_;
  Link& link_;
  const Clock& clock_;
  std::map<PeerId, Instant> last_heard_;
};

}  // namespace copse
