#pragma once
// What an actor is: one struct that takes its world as arguments and reacts. It has no thread, no
// socket and no clock of its own, so the same object runs in a process (transport/actor/runtime.h)
// and in the seeded simulator (transport/actor/sim.h).
//
//   struct Worker {
//     using Receives = MessageList<WorkerWelcome, StepPlan, Shutdown>;
//     void on(const PeerId& from, const StepPlan&);        // one overload per received message
//     void on_peer_lost(const PeerId& peer);               // disconnected, silent or misbehaving
//     void on_tick(Instant now);                           // every 20 ms: heartbeats and deadlines
//   };
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "transport/actor/peer_id.h"
#include "transport/messages/codec.h"
#include "transport/messages/kind.h"

namespace copse {

enum class SendResult : std::uint8_t {
  ok,
  full,  // the peer is slow: its bounded queue has no room; the message's OnOverflow says what then
  closed,  // the peer is gone
};

// The way out of an actor. Never blocks. Sequence numbers and the epoch are the link's business:
// the epoch stamped on a frame is the one set last.
class Link {
 public:
  virtual ~Link() = default;
  template <class Message>
  SendResult send(const PeerId& to, const Message& message) {
    return send_body(to, Message::kKind, encode(message));
  }
  // Frames of any other epoch that arrive from workers are counted and dropped.
  virtual void set_epoch(std::uint32_t epoch) = 0;
  // Forget the peer: nothing is sent to it or taken from it any more.
  virtual void close(const PeerId& peer) = 0;
  virtual std::uint64_t stale_messages() const = 0;

 protected:
  virtual SendResult send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) = 0;
};

template <class... Messages>
struct MessageList {};

// Decodes `body` as the message of `kind` and calls the matching overload. An unknown kind for this
// actor, or a body that does not decode, is an error; the actor's state is untouched.
template <class Actor, class... Messages>
Status dispatch_among(Actor& actor, const PeerId& from, Kind kind, std::span<const std::byte> body,
                      MessageList<Messages...>) {
  Status outcome = Error{ErrorCode::malformed, "kind", "no such message for this receiver"};
  const auto try_one = [&]<class Message>(std::type_identity<Message>) {
    if (Message::kKind != kind) return false;
    Result<Message> message = decode<Message>(body);
    if (!message.ok()) {
      outcome = message.error();
    } else {
      outcome = Status();
      actor.on(from, *message);
    }
    return true;
  };
  static_cast<void>((try_one(std::type_identity<Messages>{}) || ...));
  return outcome;
}

template <class Actor>
Status dispatch(Actor& actor, const PeerId& from, Kind kind, std::span<const std::byte> body) {
  return dispatch_among(actor, from, kind, body, typename Actor::Receives{});
}

}  // namespace copse
