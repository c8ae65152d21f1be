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
  if (!coordinator_.has_value() || streams_.count(request) == 0) return;
  link_.send(*coordinator_,
             Cancel{.request = request, .delivered_tokens = delivered, .reason = reason});
}

void EngineClient::heard(const PeerId& from) {
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
  if (!stream.empty()) stream.mapped().handler->on_refused(refused);
}

void EngineClient::on(const PeerId& from, const Tokens& tokens) {
  heard(from);
  const auto found = streams_.find(tokens.request);
  if (found == streams_.end()) return;  // cancelled meanwhile
  if (tokens.index != found->second.received) {
    // Never show a text with a hole or a repeat: end the stream instead.
    ++broken_streams_;
    cancel(tokens.request, found->second.received, FinishReason::abort);
    const auto stream = streams_.extract(found);
    return stream.mapped().handler->on_lost(tokens.request);
  }
  found->second.received += static_cast<std::uint32_t>(tokens.tokens.size());
  const auto handler = found->second.handler;  // it may cancel, and so change streams_
  handler->on_tokens(tokens);
}

void EngineClient::on(const PeerId& from, const RequestFinished& finished) {
  heard(from);
  const auto stream = streams_.extract(finished.request);
  if (!stream.empty()) stream.mapped().handler->on_finished(finished);
}

void EngineClient::on_peer_lost(const PeerId&) {
  coordinator_.reset();
  status_.reset();
  next_beat_ = {};
  for (auto& [request, stream] : std::exchange(streams_, {})) stream.handler->on_lost(request);
}

void EngineClient::on_tick(Instant now) {
  if (coordinator_.has_value() && now - last_heard_ > kSilence) {
    const PeerId silent = *coordinator_;
    link_.close(silent);
    on_peer_lost(silent);
  }
  if (now < next_beat_) return;
  next_beat_ = now + kBeat;
  if (coordinator_.has_value()) {
    send_heartbeat();
  } else {
    link_.send(kCoordinator, RegisterGateway{.build = build_identity()});
  }
}

void EngineClient::send_heartbeat() {
  GatewayHeartbeat beat;
  for (const auto& [request, stream] : streams_) {
    const std::uint32_t events = stream.handler->backlog();
    if (events > limits::stream_outbox_events / 4 &&
        !beat.backlogs.try_push({.request = request, .events = events})) {
      break;
    }
  }
  link_.send(*coordinator_, beat);
}

}  // namespace copse
