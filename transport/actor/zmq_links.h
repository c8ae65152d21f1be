#pragma once
// Links over ZeroMQ. The coordinator holds a RouterLink, workers and gateways a DealerLink to it.
// Never PUB/SUB, which drops silently.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/actor/actor.h"
#include "transport/actor/actor_handle.h"
#include "transport/actor/endpoint.h"
#include "transport/actor/runtime.h"
#include "transport/actor/zmq_socket.h"

namespace copse {

// One bound endpoint per role that may connect to it.
struct RouterEndpoint {
  Role peers = Role::worker;
  std::string endpoint;  // ipc://...
};

class RouterLink final : public Link {
 public:
  static Result<std::unique_ptr<RouterLink>> bind(ProcessRuntime& runtime, PeerId self,
                                                  std::vector<RouterEndpoint> endpoints);

  // From now on messages and ticks go to this actor, which must outlive the link.
  template <class Actor>
  void attach(Actor& actor) {
    attach_handle(handle_of(actor));
  }

  void set_epoch(std::uint32_t epoch) override { endpoint_.set_epoch(epoch); }
  void close(const PeerId& peer) override;
  std::uint64_t stale_messages() const override { return endpoint_.dropped(); }

 private:
  struct Bound {
    Role peers;
    std::unique_ptr<ZmqSocket> socket;
  };
  RouterLink(ProcessRuntime& runtime, PeerId self) : runtime_(runtime), endpoint_(self) {}
  SendResult send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) override;
  void attach_handle(ActorHandle actor);
  void drain(Role role);
  void receive(Role role, std::span<const ZmqSocket::Bytes> parts);
  void lose(const PeerId& peer);
  void flush();
  ZmqSocket::Sent try_send(const PeerId& to, std::span<const std::byte> frame);
  Bound* bound_for(Role role);

  ProcessRuntime& runtime_;
  Endpoint endpoint_;
  std::vector<Bound> sockets_;
  ActorHandle actor_;
  // Frames that ZeroMQ's own queue had no room for, per peer, at most link_high_water_mark each.
  std::map<PeerId, std::deque<std::vector<std::byte>>> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what the loop still holds
};

// A worker connects once and ends with its coordinator; a gateway reconnects, each time as another
// peer (a new incarnation), so that no half stream is continued.
class DealerLink final : public Link {
 public:
  struct Options {
    Role role = Role::worker;
    std::uint16_t rank = 0;
    std::string endpoint;
    bool reconnect = false;
  };
  static Result<std::unique_ptr<DealerLink>> connect(ProcessRuntime& runtime, Random& random,
                                                     Options options);

  template <class Actor>
  void attach(Actor& actor) {
    attach_handle(handle_of(actor));
  }

  void set_epoch(std::uint32_t epoch) override { endpoint_.set_epoch(epoch); }
  // There is one peer: closing it ends this connection, and begins another if told to reconnect.
  void close(const PeerId&) override { lose_later(); }
  std::uint64_t stale_messages() const override { return endpoint_.dropped(); }

 private:
  DealerLink(ProcessRuntime& runtime, Random& random, Options options);
  SendResult send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) override;
  void attach_handle(ActorHandle actor);
  Status open();
  void drain();
  bool receive(std::span<const ZmqSocket::Bytes> parts);
  void flush();
  void lose_later();
  void lose();

  ProcessRuntime& runtime_;
  Random& random_;
  Options options_;
  Endpoint endpoint_;
  std::unique_ptr<ZmqSocket> socket_;
  PeerId router_;  // as it first named itself on this connection
  bool router_known_ = false;
  bool lost_ = false;
  ActorHandle actor_;
  std::deque<std::vector<std::byte>> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what the loop still holds
};

}  // namespace copse
