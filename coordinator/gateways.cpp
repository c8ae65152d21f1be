#include "coordinator/gateways.h"

#include "base/limits.h"
#include "base/log.h"

namespace copse {

bool Gateways::admit(const PeerId& from, const RegisterGateway& message,
                     const GatewayWelcome& welcome) {
  const bool full = last_heard_.size() >= limits::gateways && !known(from);
  if (message.build != build_ || from.role != Role::gateway || full) {
    spdlog::warn("gateway {} is refused: {}", to_string(from),
                 full ? std::string("there are too many")
                      : "its build is " + message.build + ", not " + build_);
    link_.close(from);
    return false;
  }
  last_heard_[from] = clock_.now();
  if (link_.send(from, welcome) == SendResult::ok) return true;
  remove(from);
  return false;
}

void Gateways::heard(const PeerId& gateway) {
  const auto found = last_heard_.find(gateway);
  if (found != last_heard_.end()) found->second = clock_.now();
}

void Gateways::remove(const PeerId& gateway) {
  if (last_heard_.erase(gateway) > 0) link_.close(gateway);
}

std::vector<PeerId> Gateways::silent(Instant now) const {
  std::vector<PeerId> peers;
  for (const auto& [peer, heard] : last_heard_) {
    if (now - heard > milliseconds(limits::heartbeat_timeout_ms)) peers.push_back(peer);
  }
  return peers;
}

void Gateways::welcome_all(const GatewayWelcome& welcome) {
  // One that has no room for this is too slow to be served: its silence will say the same.
  for (const auto& [peer, heard] : last_heard_) static_cast<void>(link_.send(peer, welcome));
}

void Gateways::tell_all(const EngineStatus& status) {
  for (const auto& [peer, heard] : last_heard_) static_cast<void>(link_.send(peer, status));
}

}  // namespace copse
