#pragma once
// How a link hands messages and ticks to its actor without knowing which actor it is.
#include <functional>

#include "transport/actor/actor.h"

namespace copse {

struct ActorHandle {
  std::function<Status(const PeerId&, Kind, std::span<const std::byte>)> on_message;
  std::function<void(const PeerId&)> on_peer_lost;
  std::function<void(Instant)> on_tick;
};

// The actor must outlive the handle's use.
template <class Actor>
ActorHandle handle_of(Actor& actor) {
  return {[&actor](const PeerId& from, Kind kind, std::span<const std::byte> body) {
            return dispatch(actor, from, kind, body);
          },
          [&actor](const PeerId& peer) { actor.on_peer_lost(peer); },
          [&actor](Instant now) { actor.on_tick(now); }};
}

}  // namespace copse
