#include "transport/actor/zmq_links.h"

#include <spdlog/spdlog.h>

#include <array>
#include <string_view>

#include "base/limits.h"

namespace copse {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A coordinator is addressed by role alone: a dealer has one peer and learns its name from it.
constexpr PeerId kAnyCoordinator{Role::coordinator, 0, 0};

// Messages taken in one go: a flood on one socket must not starve timers and the other sockets.
constexpr int kDrainMessages = 256;

}  // namespace

// --- RouterLink ---------------------------------------------------------------------------------

Result<std::unique_ptr<RouterLink>> RouterLink::bind(ProcessRuntime& runtime, PeerId self,
                                                     std::vector<RouterEndpoint> endpoints) {
  std::unique_ptr<RouterLink> link(new RouterLink(runtime, self));
  for (const RouterEndpoint& at : endpoints) {
    COPSE_TRY(auto socket,
              ZmqSocket::bind(runtime, ZmqSocket::Type::router, at.endpoint,
                              [raw = link.get(), role = at.peers] { raw->drain(role); }));
    link->sockets_.push_back({at.peers, std::move(socket)});
  }
  return link;
}

void RouterLink::attach_handle(ActorHandle actor) {
  actor_ = std::move(actor);
  runtime_.on_tick([this, held = std::weak_ptr<bool>(alive_)](Instant now) {
    if (held.expired()) return;
    flush();
    for (const Bound& bound : sockets_) drain(bound.peers);  // should an edge ever be missed
    actor_.on_tick(now);
  });
}

RouterLink::Bound* RouterLink::bound_for(Role role) {
  for (Bound& bound : sockets_) {
    if (bound.peers == role) return &bound;
  }
  return nullptr;
}

void RouterLink::drain(Role role) {
  Bound* bound = bound_for(role);
  if (bound == nullptr || !actor_.on_message) return;
  for (int taken = 0; taken < kDrainMessages; ++taken) {
    const auto parts = bound->socket->receive();
    if (!parts.has_value()) return;
    receive(role, *parts);
  }
  bound->socket->come_back();
}

void RouterLink::receive(Role role, std::span<const Bytes> parts) {
  if (parts.size() != 2) return endpoint_.count_dropped();
  const Result<PeerId> from = parse_peer_id(text_of(parts[0]));
  // Not a peer that may speak here.
  if (!from.ok() || from->role != role) return endpoint_.count_dropped();
  const Endpoint::Judged judged = endpoint_.judge(*from, parts[1]);
  if (judged.verdict == Endpoint::Verdict::lost) {
    spdlog::warn("{}: messages were lost; its stream is over", to_string(*from));
    lose(*from);
  } else if (judged.verdict == Endpoint::Verdict::accept) {
    const Frame& frame = judged.message->frame;
    const Status status = actor_.on_message(*from, frame.header.kind, frame.body);
    if (status.ok()) return;
    endpoint_.count_dropped();
    spdlog::warn("{}: {}", to_string(*from), describe(status.error()));
  }
}

void RouterLink::lose(const PeerId& peer) {
  close(peer);
  if (actor_.on_peer_lost) actor_.on_peer_lost(peer);
}

ZmqSocket::Sent RouterLink::try_send(const PeerId& to, Bytes frame) {
  Bound* bound = bound_for(to.role);
  if (bound == nullptr) return ZmqSocket::Sent::closed;
  const std::string id = to_string(to);
  const std::array<Bytes, 2> parts{bytes_of(id), frame};
  return bound->socket->send(parts);
}

SendResult RouterLink::send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) {
  if (endpoint_.closed(to)) return SendResult::closed;
  auto queue = waiting_.find(to);
  const bool queued = queue != waiting_.end() && !queue->second.empty();
  if (queued && queue->second.size() >= limits::link_high_water_mark) return SendResult::full;
  std::vector<std::byte> frame = endpoint_.stamp(to, kind, body);
  if (!queued) {
    const ZmqSocket::Sent sent = try_send(to, frame);
    if (sent == ZmqSocket::Sent::ok) return SendResult::ok;
    if (sent == ZmqSocket::Sent::closed) return SendResult::closed;
  }
  waiting_[to].push_back(std::move(frame));
  return SendResult::ok;
}

void RouterLink::flush() {
  std::vector<PeerId> gone;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    auto& [peer, queue] = *at;
    ZmqSocket::Sent sent = ZmqSocket::Sent::ok;
    while (!queue.empty() && (sent = try_send(peer, queue.front())) == ZmqSocket::Sent::ok) {
      queue.pop_front();
    }
    if (sent == ZmqSocket::Sent::closed) gone.push_back(peer);
    at = queue.empty() ? waiting_.erase(at) : std::next(at);
  }
  for (const PeerId& peer : gone) lose(peer);
}

void RouterLink::close(const PeerId& peer) {
  endpoint_.close(peer);
  waiting_.erase(peer);
}

// --- DealerLink ---------------------------------------------------------------------------------

DealerLink::DealerLink(ProcessRuntime& runtime, Random& random, Options options)
    : runtime_(runtime),
      random_(random),
      options_(std::move(options)),
      endpoint_({options_.role, options_.rank, 0}) {}

Result<std::unique_ptr<DealerLink>> DealerLink::connect(ProcessRuntime& runtime, Random& random,
                                                        Options options) {
  std::unique_ptr<DealerLink> link(new DealerLink(runtime, random, std::move(options)));
  COPSE_RETURN_IF_ERROR(link->open());
  return link;
}

Status DealerLink::open() {
  const PeerId self{options_.role, options_.rank, random_.next()};
  endpoint_.set_self(self);
  // The router sees another peer, whose streams begin again, also if it is the same router.
  endpoint_.forget(kAnyCoordinator);
  if (router_known_) endpoint_.forget(router_);
  router_known_ = false;
  COPSE_TRY(socket_, ZmqSocket::connect(runtime_, ZmqSocket::Type::dealer, options_.endpoint,
                                        to_string(self), [this] { drain(); }));
  return socket_->watch_disconnect([this] { lose_later(); });
}

void DealerLink::attach_handle(ActorHandle actor) {
  actor_ = std::move(actor);
  runtime_.on_tick([this, held = std::weak_ptr<bool>(alive_)](Instant now) {
    if (held.expired()) return;
    if (socket_ == nullptr && !lost_) static_cast<void>(open());  // no descriptors were left
    flush();
    drain();
    actor_.on_tick(now);
  });
}

// Not at once: the caller may stand in a callback of the socket that lose() destroys.
void DealerLink::lose_later() {
  runtime_.post([this, held = std::weak_ptr<bool>(alive_), losing = endpoint_.self()] {
    if (!held.expired() && losing == endpoint_.self()) lose();
  });
}

// The connection is gone, or a frame of it: both end the stream.
void DealerLink::lose() {
  if (lost_) return;
  const PeerId router = router_known_ ? router_ : kAnyCoordinator;
  waiting_.clear();
  socket_.reset();
  lost_ = !options_.reconnect;
  if (options_.reconnect) {
    const Status opened = open();
    if (!opened.ok()) spdlog::error("cannot reconnect: {}", describe(opened.error()));
  }
  if (actor_.on_peer_lost) actor_.on_peer_lost(router);
}

void DealerLink::drain() {
  if (!actor_.on_message || socket_ == nullptr) return;
  for (int taken = 0; taken < kDrainMessages; ++taken) {
    const auto parts = socket_->receive();
    if (!parts.has_value() || !receive(*parts)) return;
  }
  socket_->come_back();
}

// False: the connection is over.
bool DealerLink::receive(std::span<const Bytes> parts) {
  const Result<Frame> frame = parse_frame(parts.empty() ? Bytes() : parts[0]);
  if (parts.size() != 1 || !frame.ok() || frame->header.role != Role::coordinator) {
    endpoint_.count_dropped();
    return true;
  }
  const PeerId from{Role::coordinator, frame->header.rank, frame->header.incarnation};
  const bool another = router_known_ && from != router_;  // another process is there now
  const Endpoint::Judged judged = endpoint_.judge(from, *frame);
  if (another || judged.verdict == Endpoint::Verdict::lost) {
    lose_later();
    return false;
  }
  if (judged.verdict != Endpoint::Verdict::accept) return true;
  router_ = from;
  router_known_ = true;
  const Status status = actor_.on_message(from, frame->header.kind, frame->body);
  if (!status.ok()) {
    endpoint_.count_dropped();
    spdlog::warn("coordinator: {}", describe(status.error()));
  }
  return true;
}

SendResult DealerLink::send_body(const PeerId& to, Kind kind, std::vector<std::byte> body) {
  if (to.role != Role::coordinator || socket_ == nullptr) return SendResult::closed;
  if (waiting_.size() >= limits::link_high_water_mark) return SendResult::full;
  // One stream whatever the name: the first message goes out before the coordinator named itself.
  std::vector<std::byte> frame = endpoint_.stamp(kAnyCoordinator, kind, body);
  waiting_.push_back(std::move(frame));
  flush();
  return SendResult::ok;
}

void DealerLink::flush() {
  while (!waiting_.empty() && socket_ != nullptr) {
    const std::array<Bytes, 1> parts{waiting_.front()};
    if (socket_->send(parts) != ZmqSocket::Sent::ok) return;  // not connected yet, or slow
    waiting_.pop_front();
  }
}

}  // namespace copse
