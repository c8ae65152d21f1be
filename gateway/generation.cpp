#include "gateway/generation.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "gateway/sse_stream.h"

namespace copse {

Generation::Generation(World world, GenerationPlan plan, std::string request_id,
                       std::shared_ptr<Exchange> exchange, Instant arrived)
    : world_(world),
      plan_(std::move(plan)),
      request_id_(std::move(request_id)),
      exchange_(std::move(exchange)),
      arrived_(arrived),
      last_write_(arrived) {}

void Generation::start() {
  exchange_->when_closed([self = shared_from_this()] { self->client_gone(); });
  exchange_->when_room([self = shared_from_this()] { self->pump(); });
  choices_.reserve(plan_.choices);
  for (std::uint32_t i = 0; i < plan_.choices; ++i) {
    Submit submit = plan_.submit;
    submit.sampling.choice = i;
    const Result<RequestId> sent = world_.engine.submit(std::move(submit), shared_from_this());
    if (!sent.ok()) return fail(api_error(sent.error()));
    choices_.emplace_back(ChoiceText(world_.model.decoder(), plan_.stop, plan_.end_tokens));
    choices_.back().request = *sent;
    choices_.back().timings.prompt_n = plan_.submit.prompt.size();
  }
}

Generation::Choice* Generation::find(RequestId request) {
  const auto at = std::find_if(choices_.begin(), choices_.end(),
                               [&](const Choice& choice) { return choice.request == request; });
  return ended_ || failure_ || at == choices_.end() || !at->open ? nullptr : &*at;
}

void Generation::on_tokens(const Tokens& tokens) {
  Choice* choice = find(tokens.request);
  if (choice == nullptr) return;
  if (tokens.index > choice->received) {
    spdlog::error("{}: tokens {} to {} are missing", request_id_, choice->received, tokens.index);
    return fail(failed_error());
  }
  const std::uint32_t skip = choice->received - tokens.index;  // repeated ones
  if (skip >= tokens.tokens.size()) return;
  take(*choice, tokens, skip);
  if (!plan_.stream) return;
  begin_stream();
  pump();
}

void Generation::take(Choice& choice, const Tokens& tokens, std::uint32_t skip) {
  const Instant now = world_.clock.now();
  const bool first = choice.received == 0;
  const auto count = static_cast<std::uint32_t>(tokens.tokens.size()) - skip;
  choice.received += count;
  if (choice.text.stopped()) return;  // behind a stop string: on their way before the cancel
  const std::uint32_t before = choice.text.delivered();
  std::string text = choice.text.push({tokens.tokens.data() + skip, count});
  const std::uint32_t delivered = choice.text.delivered() - before;
  (plan_.stream ? choice.unsent : choice.answer.text) += text;
  ++choice.unsent_messages;
  if (first) {
    world_.metrics.first_token(now - arrived_);
  } else {
    world_.metrics.next_tokens(now - choice.last_tokens, delivered);
  }
  choice.last_tokens = now;
  if (tokens.round) {
    ++choice.rounds;
    choice.round_tokens += delivered;
    choice.timings.draft_n += tokens.draft_nodes;
    // The last token of a round is the target's own, the others were drafted.
    choice.accepted += std::min(delivered, count - 1);
  }
  if (choice.text.stopped()) {
    world_.engine.cancel(choice.request, choice.text.delivered(), FinishReason::stop);
  }
}

void Generation::on_finished(const RequestFinished& finished) {
  Choice* choice = find(finished.request);
  if (choice == nullptr) return;
  const bool stopped = choice->text.stopped();
  if (!stopped && finished.reason == FinishReason::error) {
    choice->open = false;
    spdlog::error("{}: the engine failed: {}", request_id_, finished.error);
    return fail(failed_error());
  }
  if (!stopped && finished.reason != FinishReason::stop &&
      finished.reason != FinishReason::length) {
    choice->open = false;
    return fail(unavailable_error("The server ended this request before it was done."));
  }
  close_choice(*choice, finished);
  const bool all_closed =
      std::none_of(choices_.begin(), choices_.end(), [](const Choice& one) { return one.open; });
  if (plan_.stream) {
    begin_stream();
    pump();
  } else if (all_closed) {
    respond_whole();
  }
}

void Generation::close_choice(Choice& choice, const RequestFinished& finished) {
  choice.open = false;
  const bool cut = choice.text.stopped();
  if (!cut) {
    (plan_.stream ? choice.unsent : choice.answer.text) +=
        choice.text.finish(finished.reason == FinishReason::stop);
    choice.rounds = finished.draft.rounds;
    choice.round_tokens = finished.draft.round_tokens;
    choice.accepted = 0;
    for (const std::uint32_t count : finished.draft.accepted_by_position) choice.accepted += count;
  }
  // A stop string inside the budget wins over the budget's end.
  const bool stop_string = choice.text.stopped();
  choice.answer.reason = stop_string ? FinishReason::stop : finished.reason;
  if (stop_string) choice.answer.stop_string = choice.text.match();
  Timings& timings = choice.timings;
  timings.prompt_ms = 1000.0 * static_cast<double>(finished.prefill_s);
  timings.predicted_n = choice.text.delivered();
  timings.predicted_ms = 1000.0 * static_cast<double>(finished.decode_s);
  if (timings.predicted_n > 1 && timings.predicted_ms > 0) {
    timings.predicted_per_second =
        1000.0 * static_cast<double>(timings.predicted_n - 1) / timings.predicted_ms;
  }
  timings.draft_n_accepted = choice.accepted;
  if (choice.rounds > 0) {
    timings.accepted_per_round =
        static_cast<double>(choice.round_tokens) / static_cast<double>(choice.rounds);
  }
  world_.metrics.finished(choice.answer.reason, world_.clock.now() - arrived_);
}

void Generation::on_refused(const RequestRefused& refused) {
  Choice* choice = find(refused.request);
  if (choice == nullptr) return;
  choice->open = false;
  spdlog::info("{}: refused at '{}': {}", request_id_, refused.at, refused.message);
  fail(api_error(refused));
}

void Generation::on_lost(RequestId request) {
  Choice* choice = find(request);
  if (choice == nullptr) return;
  choice->open = false;
  fail(unavailable_error("The engine was lost while it worked on this request."));
}

std::uint32_t Generation::backlog() const {
  std::uint32_t messages = 0;
  for (const Choice& choice : choices_) messages = std::max(messages, choice.unsent_messages);
  if (!plan_.stream) return 0;
  return messages + static_cast<std::uint32_t>(exchange_->queued_events());
}

void Generation::cancel_open_choices(FinishReason reason) {
  for (Choice& choice : choices_) {
    if (!choice.open) continue;
    choice.open = false;
    world_.engine.cancel(choice.request, choice.text.delivered(), reason);
    world_.metrics.finished(reason, world_.clock.now() - arrived_);
  }
}

void Generation::client_gone() {
  if (ended_) return;
  cancel_open_choices(FinishReason::abort);
  end("the client left");
}

void Generation::end_by_server() {
  if (!ended_) fail(unavailable_error("The server is shutting down."));
}

void Generation::fail(const ApiError& error) {
  if (ended_ || failure_) return;
  const auto self = shared_from_this();  // the exchange lets go of us when it has its answer
  cancel_open_choices(FinishReason::error);
  world_.metrics.refused(error.status);
  if (stream_begun_) {
    failure_ = error;
    return pump();
  }
  HttpResponse response = error_response(error);
  response.headers.emplace_back("X-Request-Id", request_id_);
  exchange_->respond(std::move(response));
  end("refused");
}

void Generation::on_tick(Instant now) {
  const Duration keep_alive = milliseconds(limits::sse_keep_alive_ms);
  if (ended_ || !plan_.stream || now - last_write_ < keep_alive) return;
  begin_stream();
  // A client that does not read needs no sign of life.
  if (exchange_->queued_events() == 0) static_cast<void>(exchange_->write(sse_keep_alive()));
  last_write_ = now;
}

void Generation::begin_stream() {
  if (std::exchange(stream_begun_, true)) return;
  HttpHeaders headers = sse_headers();
  headers.emplace_back("X-Request-Id", request_id_);
  exchange_->begin_stream(headers);
}

// True if the event is on its way; else pump() comes again when there is room.
bool Generation::send(std::string event) {
  last_write_ = world_.clock.now();
  return exchange_->write(std::move(event)) == WriteResult::ok;
}

// Sends whatever is due, in order, until the outbox is full.
void Generation::pump() {
  if (ended_ || !stream_begun_) return;
  const auto self = shared_from_this();  // the exchange lets go of us at the end of the stream
  if (failure_) {
    if (!send(sse_event(error_body(*failure_)))) return;
    exchange_->end_stream();
    return end("failed");
  }
  bool all_sent = true;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (!pump_choice(i)) return;
    all_sent = all_sent && choices_[i].finish_sent;
  }
  if (!all_sent) return;
  if (plan_.head.include_usage && !usage_sent_) {
    if (!send(sse_event(usage_chunk(plan_.head, usage())))) return;
    usage_sent_ = true;
  }
  if (!send(sse_done())) return;
  exchange_->end_stream();
  end("done");
}

bool Generation::pump_choice(std::size_t index) {
  Choice& choice = choices_[index];
  const bool waiting = choice.received == 0 && choice.open;  // not accepted yet, as far as we know
  if (waiting || choice.finish_sent) return true;
  if (plan_.head.kind == ReplyKind::chat && !choice.role_sent) {
    if (!send(sse_event(role_chunk(plan_.head, index)))) return false;
    choice.role_sent = true;
  }
  if (!choice.unsent.empty()) {
    if (!send(sse_event(text_chunk(plan_.head, index, choice.unsent)))) return false;
    choice.unsent.clear();
  }
  choice.unsent_messages = 0;
  if (!choice.open) {
    if (!send(sse_event(finish_chunk(plan_.head, index, choice.answer, choice.timings)))) {
      return false;
    }
    choice.finish_sent = true;
  }
  return true;
}

void Generation::respond_whole() {
  const auto self = shared_from_this();  // the exchange lets go of us when it has its answer
  std::vector<ChoiceAnswer> answers;
  for (Choice& choice : choices_) answers.push_back(std::move(choice.answer));
  HttpResponse response;
  response.body = whole_answer(plan_.head, answers, usage(), timings());
  response.headers.emplace_back("X-Request-Id", request_id_);
  exchange_->respond(std::move(response));
  end("done");
}

void Generation::end(const char* how) {
  ended_ = true;
  const Usage used = usage();
  spdlog::info("{}: {} after {:.3f} s, {} + {} tokens", request_id_, how,
               seconds(world_.clock.now() - arrived_), used.prompt_tokens, used.completion_tokens);
}

Usage Generation::usage() const {
  Usage usage;
  usage.prompt_tokens = plan_.submit.prompt.size();
  for (const Choice& choice : choices_) {
    usage.completion_tokens += choice.text.delivered();
    usage.accepted_tokens += choice.accepted;
  }
  return usage;
}

// Over all choices: counts add up, times are those of the slowest.
Timings Generation::timings() const {
  Timings sum;
  std::uint64_t rounds = 0;
  std::uint64_t round_tokens = 0;
  for (const Choice& choice : choices_) {
    const Timings& one = choice.timings;
    sum.prompt_n = one.prompt_n;
    sum.prompt_ms = std::max(sum.prompt_ms, one.prompt_ms);
    sum.predicted_n += one.predicted_n;
    sum.predicted_ms = std::max(sum.predicted_ms, one.predicted_ms);
    sum.predicted_per_second += one.predicted_per_second;
    sum.draft_n += one.draft_n;
    sum.draft_n_accepted += one.draft_n_accepted;
    rounds += choice.rounds;
    round_tokens += choice.round_tokens;
  }
  if (rounds > 0) {
    sum.accepted_per_round = static_cast<double>(round_tokens) / static_cast<double>(rounds);
  }
  return sum;
}

}  // namespace copse
