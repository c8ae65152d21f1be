#include "transport/client/engine_client.h"

#include <utility>

#include "base/limits.h"

namespace copse {
namespace {

constexpr PeerId kCoordinator{Role::coordinator, 0, 0};
constexpr Duration kBeat = milliseconds(limits::heartbeat_ms);
constexpr Duration kSilence = milliseconds(limits::heartbeat_timeout_ms);

}  // namespace

Result<RequestId> EngineClient::submit(Submit submit, std::shared_ptr<StreamHandler> handler) {
  if (!coordinator_.has_value()) {
    return Error{ErrorCode::unavailable, "", "The engine is not reachable."};
  }
  submit.request = next_request_++;
  switch (link_.send(*coordinator_, submit)) {
    case SendResult::ok:
      streams_[submit.request].handler = std::move(handler);
      return submit.request;
    case SendResult::full:
      return Error{ErrorCode::resource_exhausted, "", "The engine takes no more requests now."};
    case SendResult::closed:
      break;
  }
  return Error{ErrorCode::unavailable, "", "The engine is not reachable."};
}

void EngineClient::cancel(RequestId request, std::uint32_t delivered, FinishReason reason) {
  const auto found = streams_.find(request);
  if (found == streams_.end() || found->second.cancel.has_value()) return;
  found->second.cancel =
      Cancel{.request = request, .delivered_tokens = delivered, .reason = reason};
  send_cancel(found->second);
}

// A cancel that found no room goes out at a later tick: lost, it would leave a request running for
// nobody.
void EngineClient::send_cancel(Stream& stream) {
  if (!coordinator_.has_value() || !stream.cancel.has_value() || stream.cancel_sent) return;
  stream.cancel_sent = link_.send(*coordinator_, *stream.cancel) == SendResult::ok;
}

void EngineClient::heard(const PeerId& from) {
  if (!coordinator_.has_value()) next_beat_ = {};  // from now on the coordinator listens for it
  coordinator_ = from;
  last_heard_ = clock_.now();
}

void EngineClient::on(const PeerId& from, const GatewayWelcome& welcome) {
  heard(from);
  welcome_ = welcome;
}

void EngineClient::on(const PeerId& from, const EngineStatus& status) {
  heard(from);
  status_ = status;
}

void EngineClient::on(const PeerId& from, const RequestRefused& refused) {
  heard(from);
  const auto stream = streams_.extract(refused.request);
  if (!stream.empty() && !stream.mapped().broken) stream.mapped().handler->on_refused(refused);
}

void EngineClient::on(const PeerId& from, const Tokens& tokens) {
  heard(from);
  const auto found = streams_.find(tokens.request);
  if (found == streams_.end()) return;  // cancelled meanwhile
  if (found->second.broken) return;     // it has ended for its handler
  if (tokens.index != found->second.received) {
    // Never show a text with a hole or a repeat: end the stream instead.
    ++broken_streams_;
    found->second.broken = true;
    const auto handler = found->second.handler;
    cancel(tokens.request, found->second.received, FinishReason::abort);
    return handler->on_lost(tokens.request);
  }
  found->second.received += static_cast<std::uint32_t>(tokens.tokens.size());
  const auto handler = found->second.handler;  // it may cancel, and so change streams_
  handler->on_tokens(tokens);
}

void EngineClient::on(const PeerId& from, const RequestFinished& finished) {
  heard(from);
  const auto stream = streams_.extract(finished.request);
  if (!stream.empty() && !stream.mapped().broken) stream.mapped().handler->on_finished(finished);
}

void EngineClient::on_peer_lost(const PeerId&) {
  coordinator_.reset();
  status_.reset();
  registering_ = false;
  next_beat_ = {};
  for (auto& [request, stream] : std::exchange(streams_, {})) {
    if (!stream.broken) stream.handler->on_lost(request);
  }
}

void EngineClient::on_tick(Instant now) {
  if (coordinator_.has_value() && now - last_heard_ > kSilence) {
    const PeerId silent = *coordinator_;
    link_.close(silent);
    on_peer_lost(silent);
  }
  for (auto& [request, stream] : streams_) send_cancel(stream);
  if (now < next_beat_) return;
  if (coordinator_.has_value()) {
    next_beat_ = now + kBeat;
    send_heartbeat();
  } else {
    next_beat_ = now + kSilence;
    register_again();
  }
}

// One registration per connection: while nobody answers they would pile up in the link, and all
// arrive at once.
void EngineClient::register_again() {
  if (std::exchange(registering_, true)) {
    link_.close(kCoordinator);  // on_peer_lost follows, and with it the next registration
  } else {
    static_cast<void>(link_.send(kCoordinator, RegisterGateway{.build = build_identity()}));
  }
}

void EngineClient::send_heartbeat() {
  GatewayHeartbeat beat;
  for (const auto& [request, stream] : streams_) {
    const std::uint32_t events = stream.broken ? 0 : stream.handler->backlog();
    if (events > limits::stream_outbox_events / 4 &&
        !beat.backlogs.try_push({.request = request, .events = events})) {
      break;
    }
  }
  static_cast<void>(link_.send(*coordinator_, beat));  // the next one says the same
}

}  // namespace copse
