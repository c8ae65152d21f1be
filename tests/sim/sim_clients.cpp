#include "tests/sim/sim_clients.h"

#include <algorithm>

#include "base/limits.h"

namespace copse {
namespace {

// A heartbeat's wait, a stalled pipe each way, and what a fast engine delivers meanwhile.
constexpr std::uint32_t kBacklogSlack = 280;
constexpr Duration kCancelLimit = milliseconds(3000);

}  // namespace

SimStream::SimStream(const OracleModel& model, Submit request, const Clock& clock,
                     Violations& violations)
    : answer_(model.answer(request)),
      request_(std::move(request)),
      clock_(clock),
      violations_(violations) {}

std::string SimStream::name() const {
  return "request " + std::to_string(id) + " (" + std::to_string(request_.prompt.size()) + "+" +
         std::to_string(request_.max_tokens) + ")";
}

void SimStream::wrong(const std::string& what) {
  violations_.push_back(name() + ": " + what);
}

void SimStream::on_tokens(const Tokens& tokens) {
  if (ended_) return wrong("tokens after its end");
  for (TokenId token : tokens.tokens) {
    const std::size_t index = got_.size();
    got_.push_back(token);
    if (index < answer_.tokens.size() && answer_.tokens[index] == token) continue;
    return wrong("token " + std::to_string(index) + " is not the model's");
  }
  if (!reading_ && ++unread_ > limits::stream_outbox_events + kBacklogSlack) {
    wrong("its backlog has no bound");
    set_reading(true);
  }
}

void SimStream::set_reading(bool reading) {
  reading_ = reading;
  if (reading) unread_ = 0;
}

void SimStream::end() {
  if (ended_) wrong("a second end");
  ended_ = true;
}

void SimStream::on_finished(const RequestFinished& finished) {
  end();
  switch (finished.reason) {
    case FinishReason::stop:
    case FinishReason::length:
      if (cancelled && finished.reason == FinishReason::stop) return;
      whole_ = got_ == answer_.tokens && finished.reason == answer_.finish;
      if (!whole_) wrong("it ended with another answer than the model's");
      return;
    case FinishReason::abort:
      if (!cancelled) wrong("nobody aborted it");
      return;
    default:
      if (!engine_may_fail) wrong("an error: " + finished.error);
  }
}

void SimStream::on_refused(const RequestRefused& refused) {
  end();
  if (!got_.empty()) wrong("a refusal after tokens");
  const bool expected = refused.kind == RefusalKind::unavailable ||
                        refused.kind == RefusalKind::queue_full ||
                        (refused.kind == RefusalKind::too_long && too_long);
  if (!expected) wrong("refused: " + refused.message);
}

void SimStream::on_lost(RequestId) {
  end();
  if (!may_be_lost) wrong("lost without a fault of its gateway");
}

SimGateway::SimGateway(SimWorld& world, const OracleModel& model, Violations& violations)
    : world_(world), model_(model), violations_(violations) {
  node_ = world_.add_node({Role::gateway, 0, world_.random().next()});
  client_ = std::make_unique<EngineClient>(world_.link(node_), world_.clock());
  world_.attach(node_, *client_);
}

bool SimGateway::submit(Submit request, bool too_long) {
  const Instant now = world_.clock().now();
  if (now < paused_until_) return false;  // a stopped process does nothing
  auto stream = std::make_shared<SimStream>(model_, request, world_.clock(), violations_);
  stream->too_long = too_long;
  stream->engine_may_fail = engine_may_fail_;
  stream->may_be_lost = now < losses_until_;
  const Result<RequestId> id = client_->submit(std::move(request), stream);
  if (!id.ok()) return false;
  stream->id = *id;
  streams_.push_back(std::move(stream));
  return true;
}

void SimGateway::cancel(SimStream& stream) {
  if (world_.clock().now() < paused_until_) return;
  if (!stream.cancelled) stream.cancelled = world_.clock().now();
  client_->cancel(stream.id, stream.received(), FinishReason::abort);
}

void SimGateway::crash() {
  alive_ = false;
  world_.crash(node_);
}

void SimGateway::disconnect() {
  excuse_losses();
  // It has not noticed yet.
  losses_until_ = std::max(losses_until_, world_.clock().now() + milliseconds(1));
  world_.disconnect(node_);
}

void SimGateway::pause(Duration time) {
  paused_until_ = world_.clock().now() + time;
  if (time > milliseconds(limits::heartbeat_timeout_ms / 2)) {
    excuse_losses();
    // Each side finds out by the other's silence.
    const Instant noticed = paused_until_ + milliseconds(limits::heartbeat_timeout_ms + 500);
    losses_until_ = std::max(losses_until_, noticed);
  }
  world_.pause(node_, true);
  world_.after(time, [this] {
    if (alive_) world_.pause(node_, false);
  });
}

void SimGateway::excuse_losses() {
  for (const auto& stream : streams_) stream->may_be_lost = true;
}

void SimGateway::excuse_everything() {
  engine_may_fail_ = true;
  losses_until_ = Instant::max();
}

std::size_t SimGateway::open() const {
  return static_cast<std::size_t>(std::count_if(streams_.begin(), streams_.end(),
                                                [](const auto& stream) { return stream->open(); }));
}

void SimGateway::check(Instant now) {
  if (!alive_) return;
  for (const auto& stream : streams_) {
    if (!stream->open() || !stream->cancelled || stream->may_be_lost) continue;
    if (now - *stream->cancelled < kCancelLimit) continue;
    violations_.push_back(stream->name() + ": cancelled, and it goes on");
    stream->cancelled.reset();
  }
  if (client_->broken_streams() > 0) violations_.push_back("a stream has a gap or a repeat");
}

}  // namespace copse
