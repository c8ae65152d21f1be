#include "coordinator/coordinator.h"

#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "scheduler/planted_bugs.h"

namespace copse {
namespace {

constexpr std::uint32_t kRetryAfterS = 5;  // a group of the embedded size is back by then
// Gateways hear of the end before the process ends.
constexpr Duration kLastNews = milliseconds(200);

RequestRefused refused_of(RequestId request, const Refusal& refusal) {
  RequestRefused message;
  message.request = request;
  message.kind = refusal.kind;
  message.at = refusal.at;
  message.message = refusal.message;
  message.retry_after_s = refusal.retry_after_s;
  return message;
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Link& link, Spawner& spawner,
                         const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      link_(link),
      scheduler_(options_.scheduler),
      gateways_(options_.build, link, clock),
      streams_(link, requests_, scheduler_, clock),
      workers_({options_.world_size, options_.build}, link, spawner, clock, *this),
      steps_(scheduler_, workers_, streams_, clock) {
  spawner.set_listener(this);
}

// --- gateways -----------------------------------------------------------------------------------

void Coordinator::on(const PeerId& from, const RegisterGateway& message) {
  if (!gateways_.admit(from, message, welcome())) return;
  static_cast<void>(link_.send(from, status()));
}

void Coordinator::on(const PeerId& from, const Submit& message) {
  if (!gateways_.known(from)) return link_.close(from);
  gateways_.heard(from);
  ClientRequest* request = requests_.add(from, message.request);
  if (request == nullptr) {
    // A refusal would end the open request of that name in the gateway's eyes.
    spdlog::warn("gateway {} submits request {} twice", to_string(from), message.request);
    return;
  }
  std::optional<Refusal> refusal = unavailable();
  if (!refusal) refusal = scheduler_.submit(request->sequence, message, clock_.now());
  if (refusal) {
    requests_.erase(request->sequence);
    const SendResult sent = link_.send(from, refused_of(message.request, *refusal));
    if (sent == SendResult::full) lose_gateway(from);  // too slow to be served
    return;
  }
  was_idle_ = false;
  steps_.advance();
}

std::optional<Refusal> Coordinator::unavailable() const {
  const auto because = [](const char* message) {
    return Refusal{RefusalKind::unavailable, "", message, kRetryAfterS};
  };
  switch (state_) {
    case GroupState::ready:
      return std::nullopt;
    case GroupState::loading:
      return because("the model is loading");
    case GroupState::draining:
      return because("the server is shutting down");
    case GroupState::failed:
      return because("the engine has failed");
    case GroupState::recovering:
      break;
  }
  const Duration down = clock_.now() - workers_.lost_at();
  if (down <= milliseconds(limits::recovery_patience_ms)) return std::nullopt;
  return because("the engine is restarting");
}

void Coordinator::on(const PeerId& from, const Cancel& message) {
  gateways_.heard(from);
  ClientRequest* request = requests_.find(from, message.request);
  if (request == nullptr || planted(PlantedBug::lost_cancel)) return;
  const SequenceId id = request->sequence;
  const FinishReason reason =
      message.reason == FinishReason::stop ? FinishReason::stop : FinishReason::abort;
  request->outbox.clear();  // nobody reads them any more
  if (request->finished) {
    // It had ended by itself, but its last tokens are among those that are not sent now.
    request->finished->reason = reason;
    request->finished->generated_tokens = message.delivered_tokens;
  }
  const auto end = scheduler_.cancel(id, reason, clock_.now(), {}, message.delivered_tokens);
  if (end) streams_.publish(*end);
}

void Coordinator::on(const PeerId& from, const GatewayHeartbeat& message) {
  if (!gateways_.known(from)) return link_.close(from);
  gateways_.heard(from);
  streams_.on_backlogs(from, message);
  steps_.advance();
}

void Coordinator::on_peer_lost(const PeerId& peer) {
  if (peer.role == Role::worker) workers_.on_peer_lost(peer);
  if (peer.role == Role::gateway) lose_gateway(peer);
}

void Coordinator::lose_gateway(const PeerId& peer) {
  gateways_.remove(peer);
  if (planted(PlantedBug::orphans_kept)) return;
  const std::vector<SequenceId> orphans = requests_.of(peer);
  for (SequenceId id : orphans) {
    static_cast<void>(scheduler_.cancel(id, FinishReason::abort, clock_.now()));
    requests_.erase(id);
  }
  if (!orphans.empty()) {
    spdlog::warn("gateway {} is lost: {} requests are cancelled", to_string(peer), orphans.size());
  }
}

// --- the group ----------------------------------------------------------------------------------

void Coordinator::on_group_ready(const WorkerReady& bounds) {
  bounds_ = bounds;
  streams_.publish(scheduler_.start(workers_.epoch(), bounds, clock_.now()));
  if (state_ != GroupState::draining) state_ = GroupState::ready;
  gateways_.welcome_all(welcome());
  tell_status();
  steps_.advance();
}

void Coordinator::on_group_lost(const std::string&) {
  scheduler_.reset();
  // A drain does not wait for a group to load again.
  if (state_ == GroupState::draining) {
    end_all(FinishReason::error, "the server is shutting down");
  } else if (bounds_) {
    state_ = GroupState::recovering;
  }
  tell_status();
}

void Coordinator::on_group_failed(const std::string& cause, int exit_code) {
  scheduler_.reset();
  state_ = GroupState::failed;
  end_all(FinishReason::error, "the engine has failed");
  spdlog::critical("the workers are not started again: {}", cause);
  exit_code_when_told_ = drain_since_ ? 0 : exit_code;
  exit_at_ = clock_.now() + kLastNews;
  tell_status();
}

void Coordinator::end_all(FinishReason reason, const std::string& error) {
  for (SequenceId id : requests_.all()) {
    const auto end = scheduler_.cancel(id, reason, clock_.now(), error);
    if (end) streams_.publish(*end);
  }
}

// --- time ---------------------------------------------------------------------------------------

void Coordinator::on_tick(Instant now) {
  workers_.on_tick(now);
  for (const PeerId& gateway : gateways_.silent(now)) lose_gateway(gateway);
  for (SequenceId id : streams_.on_tick(now)) end_slow(id);
  steps_.advance();
  check_at_rest();
  if (drain_since_) continue_drain(now);
  if (exit_at_ && now >= *exit_at_ && workers_.gone()) exit_code_ = exit_code_when_told_;
  if (now - last_status_ >= milliseconds(limits::heartbeat_ms)) tell_status();
}

// A stream that has not moved for limits::slow_client_ms ends. If not even its end can be said, the
// gateway itself does not read.
void Coordinator::end_slow(SequenceId id) {
  ClientRequest* request = requests_.find(id);
  if (request == nullptr) return;
  if (request->finished) return lose_gateway(request->gateway);
  request->outbox.clear();
  const auto end =
      scheduler_.cancel(id, FinishReason::abort, clock_.now(), "the client does not read");
  if (end) streams_.publish(*end);
}

// Whenever the last request is gone, everything that it held must be back.
void Coordinator::check_at_rest() {
  const bool idle = scheduler_.idle();
  if (idle && !was_idle_) {
    const Status integrity = scheduler_.check_integrity();
    if (!integrity.ok()) spdlog::critical("{}", describe(integrity.error()));
    CHECK(integrity.ok());
  }
  was_idle_ = idle;
}

void Coordinator::drain() {
  if (drain_since_) {
    workers_.kill();
    exit_code_ = 130;
    return;
  }
  spdlog::info("draining: {} requests are open", requests_.size());
  drain_since_ = clock_.now();
  if (state_ != GroupState::failed) state_ = GroupState::draining;
  if (!workers_.ready()) end_all(FinishReason::error, "the server is shutting down");
  tell_status();
}

void Coordinator::continue_drain(Instant now) {
  if (exit_at_) return;
  if (!shutting_down_) {
    const bool late = now - *drain_since_ > milliseconds(limits::drain_ms);
    if (late) end_all(FinishReason::error, "the server is shutting down");
    if (!late && requests_.size() > 0) return;
    shutting_down_ = true;
    workers_.shut_down();
  }
  if (workers_.gone()) exit_at_ = now + kLastNews;
}

// --- status -------------------------------------------------------------------------------------

GatewayWelcome Coordinator::welcome() const {
  GatewayWelcome welcome;
  if (!bounds_) return welcome;
  welcome.context_tokens = bounds_->context_tokens;
  welcome.vocabulary = bounds_->vocabulary;
  welcome.end_tokens = bounds_->end_tokens;
  welcome.draft_block = bounds_->draft_block;
  return welcome;
}

EngineStatus Coordinator::status() const {
  const SchedulerTotals& totals = scheduler_.totals();
  EngineStatus status;
  status.state = state_;
  status.epoch = workers_.epoch();
  status.cause = workers_.cause().substr(0, limits::error_text_bytes);
  status.running = static_cast<std::uint32_t>(scheduler_.running());
  status.waiting = static_cast<std::uint32_t>(scheduler_.waiting());
  status.pages_used = static_cast<std::uint32_t>(scheduler_.pages_used());
  status.pages_total = static_cast<std::uint32_t>(scheduler_.pages_total());
  status.steps = totals.steps;
  status.prompt_tokens = totals.prompt_tokens;
  status.generated_tokens = totals.generated_tokens;
  status.rounds = totals.rounds;
  status.draft_nodes = totals.draft_nodes;
  status.accepted_tokens = totals.accepted_tokens;
  status.accepted_by_position = totals.accepted_by_position;
  status.restarts = workers_.restarts();
  status.stale_messages = link_.stale_messages();
  status.draft_reason = scheduler_.draft_reason();
  status.control_us = steps_.control_us();
  for (RankStatus& rank : workers_.ranks()) status.ranks.push_back(std::move(rank));
  return status;
}

std::size_t Coordinator::orphan_requests() const {
  std::size_t orphans = 0;
  for (SequenceId id : requests_.all()) {
    orphans += gateways_.known(requests_.find(id)->gateway) ? 0 : 1;
  }
  return orphans;
}

void Coordinator::tell_status() {
  last_status_ = clock_.now();
  gateways_.tell_all(status());
}

}  // namespace copse
