#include "coordinator/streams.h"

#include <unordered_map>

#include "base/limits.h"
#include "scheduler/planted_bugs.h"

namespace copse {
namespace {

Tokens tokens_of(const Delivery& delivery, RequestId request) {
  Tokens tokens;
  tokens.request = request;
  tokens.index = delivery.index;
  tokens.tokens = delivery.tokens;
  tokens.draft_nodes = delivery.draft_nodes;
  tokens.round = delivery.round;
  return tokens;
}

RequestFinished finished_of(const Finished& finished, RequestId request) {
  RequestFinished message;
  message.request = request;
  message.reason = finished.reason;
  message.generated_tokens = finished.generated;
  message.draft = finished.draft;
  message.queue_s = finished.queue_s;
  message.prefill_s = finished.prefill_s;
  message.decode_s = finished.decode_s;
  message.error = finished.error;
  return message;
}

}  // namespace

void Streams::publish(const Committed& committed) {
  for (const Delivery& delivery : committed.deliveries) {
    ClientRequest* request = requests_.find(delivery.sequence);
    if (request == nullptr) continue;
    request->outbox.push_back(tokens_of(delivery, request->request));
    flush(*request);
  }
  publish(committed.finished);
}

void Streams::publish(const std::vector<Finished>& finished) {
  for (const Finished& each : finished) publish(each);
}

void Streams::publish(const Finished& finished) {
  ClientRequest* request = requests_.find(finished.sequence);
  if (request == nullptr) return;
  const bool forgotten = planted(PlantedBug::forgotten_finish) && finished.generated == 1;
  if (!forgotten) request->finished = finished_of(finished, request->request);
  flush(*request);
}

void Streams::flush(ClientRequest& request) {
  while (!request.outbox.empty()) {
    const SendResult sent = link_.send(request.gateway, request.outbox.front());
    if (sent == SendResult::full && !planted(PlantedBug::dropped_tokens)) break;
    request.outbox.pop_front();  // taken, or its gateway is gone and will be cleared away
  }
  if (request.outbox.empty() && request.finished) {
    const SendResult sent = link_.send(request.gateway, *request.finished);
    if (sent != SendResult::full) return requests_.erase(request.sequence);
  }
  judge(request);
}

// Whether the stream can take more; its sequence runs only then.
void Streams::judge(ClientRequest& request) {
  const bool blocked = !request.settled() || request.backlog >= limits::stream_outbox_events;
  if (blocked == request.blocked_since.has_value()) return;
  if (blocked) request.blocked_since = clock_.now();
  if (!blocked) request.blocked_since.reset();
  if (planted(PlantedBug::pause_forgotten)) return;
  scheduler_.pause(request.sequence, blocked);
}

void Streams::on_backlogs(const PeerId& gateway, const GatewayHeartbeat& heartbeat) {
  std::unordered_map<RequestId, std::uint32_t> listed;
  for (const StreamBacklog& backlog : heartbeat.backlogs) listed[backlog.request] = backlog.events;
  for (SequenceId id : requests_.of(gateway)) {
    ClientRequest& request = *requests_.find(id);
    const auto found = listed.find(request.request);
    request.backlog = found == listed.end() ? 0 : found->second;
    judge(request);
  }
}

std::vector<SequenceId> Streams::on_tick(Instant now) {
  std::vector<SequenceId> stuck;
  for (SequenceId id : requests_.all()) {
    ClientRequest& request = *requests_.find(id);
    if (!request.blocked_since) continue;
    const bool too_long = now - *request.blocked_since > milliseconds(limits::slow_client_ms);
    if (too_long) stuck.push_back(id);
    if (!request.settled()) flush(request);
  }
  return stuck;
}

}  // namespace copse
