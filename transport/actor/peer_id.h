#pragma once
// Who a message is from or for.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/messages/frame.h"

namespace copse {

// On the wire a routing id is role.rank.incarnation. The incarnation is random per connection, so a
// peer that restarts or reconnects is another peer. The rank of a coordinator and a gateway is 0.
struct PeerId {
  Role role = Role::coordinator;
  std::uint16_t rank = 0;
  std::uint64_t incarnation = 0;
  auto operator<=>(const PeerId&) const = default;
};

std::string to_string(const PeerId& peer);  // "worker.3.00000000deadbeef"
Result<PeerId> parse_peer_id(std::string_view text);

}  // namespace copse
