#include "gateway/gateway.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "gateway/openai/api_error.h"

namespace copse {
namespace {

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpResponse root_page() {
  return {200,
          "text/plain; charset=utf-8",
          "copse: POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health, "
          "GET /metrics\n",
          {}};
}

}  // namespace

Gateway::Gateway(World world, std::string model_name)
    : world_(world),
      model_name_(std::move(model_name)),
      started_(unix_seconds()),
      metrics_(model_name_) {}

void Gateway::handle(const Route& route, HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const auto respond = [&](HttpResponse response) {
    response.headers.emplace_back("X-Request-Id", request.request_id);
    exchange->respond(std::move(response));
  };
  const auto& status = world_.engine.status();
  switch (route.resource) {
    case Resource::root:
      return respond(root_page());
    case Resource::health:
      return respond(health());
    case Resource::metrics:
      return respond(
          {200,
           "text/plain; version=0.0.4; charset=utf-8",
           metrics_.text(status ? &*status : nullptr, world_.engine.connected(), connections_()),
           {}});
    case Resource::models: {
      const auto& welcome = world_.engine.welcome();
      return respond({200,
                      "application/json",
                      model_list(model_name_, started_, welcome ? welcome->context_tokens : 0),
                      {}});
    }
    case Resource::completions:
      return prepare(ReplyKind::text, std::move(request), std::move(exchange));
    case Resource::chat_completions:
      return prepare(ReplyKind::chat, std::move(request), std::move(exchange));
  }
}

void Gateway::refuse(const ApiError& error, const std::string& request_id, Exchange& exchange) {
  metrics_.refused(error.status);
  HttpResponse response = error_response(error);
  response.headers.emplace_back("X-Request-Id", request_id);
  exchange.respond(std::move(response));
}

void Gateway::prepare(ReplyKind kind, HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (const auto error = refusal()) return refuse(*error, request.request_id, *exchange);
  PrepareInput input{kind, std::move(request.body), model_name_, *world_.engine.welcome(),
                     world_.random.next()};
  const std::uint64_t number = next_preparing_++;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->when_closed([this, number] {
    const Instant arrived = drop(number).arrived;
    metrics_.finished(FinishReason::abort, world_.clock.now() - arrived);
  });
  preparing_[number] = {std::move(request.request_id), std::move(exchange), world_.clock.now(),
                        gone};
  queue(number, std::move(input), gone);
}

void Gateway::queue(std::uint64_t number, PrepareInput input,
                    std::shared_ptr<std::atomic<bool>> gone) {
  if (world_.work == nullptr) return on_prepared(number, prepare_body(input, world_.model));
  const std::size_t bytes = input.body.size();
  const auto shared = std::make_shared<PrepareInput>(std::move(input));
  const bool taken = world_.work->push(bytes, [this, &model = world_.model, number, shared, gone] {
    std::function<void()> done = [] {};
    if (*gone) return done;
    const auto prepared = std::make_shared<Prepared>(prepare_body(*shared, model));
    done = [this, number, prepared] { on_prepared(number, std::move(*prepared)); };
    return done;
  });
  if (!taken) on_prepared(number, api_error(Error{ErrorCode::resource_exhausted, "", ""}));
}

void Gateway::on_prepared(std::uint64_t number, Prepared prepared) {
  const auto at = preparing_.find(number);
  if (at == preparing_.end()) return;  // its client left, or the server ended it
  Preparing preparing = std::move(at->second);
  preparing_.erase(at);
  if (const auto* error = std::get_if<ApiError>(&prepared)) {
    return refuse(*error, preparing.request_id, *preparing.exchange);
  }
  start(std::move(preparing), std::move(std::get<GenerationPlan>(prepared)));
}

void Gateway::start(Preparing preparing, GenerationPlan plan) {
  const bool chat = plan.head.kind == ReplyKind::chat;
  plan.head.id = (chat ? "chatcmpl-" : "cmpl-") + hex64(world_.random.next());
  plan.head.created = unix_seconds();
  plan.head.model = model_name_;
  const auto generation = std::make_shared<Generation>(
      Generation::World{world_.engine, world_.model, metrics_, world_.clock}, std::move(plan),
      std::move(preparing.request_id), std::move(preparing.exchange), preparing.arrived);
  std::erase_if(generations_, [](const auto& weak) { return weak.expired(); });
  generations_.push_back(generation);
  generation->start();
}

// Nobody waits any more for one that is being prepared.
Gateway::Preparing Gateway::drop(std::uint64_t number) {
  auto dropped = preparing_.extract(number);
  CHECK(!dropped.empty());
  *dropped.mapped().gone = true;
  return std::move(dropped.mapped());
}

// Why no generation can start now.
std::optional<ApiError> Gateway::refusal() const {
  if (draining_) return unavailable_error("The server is shutting down.");
  const auto& status = world_.engine.status();
  if (!world_.engine.connected() || !world_.engine.welcome() || !status) {
    return unavailable_error("The engine is not available.");
  }
  switch (status->state) {
    case GroupState::ready:
    case GroupState::recovering:  // the coordinator queues it, or refuses if that takes too long
      return std::nullopt;
    case GroupState::loading:
      return unavailable_error("The model is loading.");
    case GroupState::draining:
      return unavailable_error("The server is shutting down.");
    case GroupState::failed:
      return unavailable_error("The engine has failed.");
  }
  return failed_error();
}

const char* Gateway::state() const {
  if (draining_) return "draining";
  const auto& status = world_.engine.status();
  // Silent or gone: a coordinator that only hung comes back, and a new one may come.
  if (!world_.engine.connected()) return world_.engine.welcome() ? "unreachable" : "loading";
  if (!status) return "loading";
  switch (status->state) {
    case GroupState::loading:
      return "loading";
    case GroupState::ready:
      return world_.engine.welcome() ? "ok" : "loading";
    case GroupState::recovering:
      return "recovering";
    case GroupState::draining:
      return "draining";
    case GroupState::failed:
      return "failed";
  }
  return "failed";
}

HttpResponse Gateway::health() const {
  const std::string_view now = state();
  Json body{{"status", now}};
  const auto& status = world_.engine.status();
  if (now == "loading" && status) {
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    for (const RankStatus& rank : status->ranks) {
      done += rank.load_done;
      total += rank.load_total;
    }
    body["load_done_bytes"] = done;
    body["load_total_bytes"] = total;
  }
  HttpResponse response{now == "ok" ? 200 : 503, "application/json", dump_json(body), {}};
  response.headers.emplace_back("Cache-Control", "no-store");
  if (now != "ok") response.headers.emplace_back("Retry-After", "1");
  return response;
}

void Gateway::on_tick(Instant now) {
  std::erase_if(generations_, [](const auto& weak) { return weak.expired(); });
  const auto running = generations_;  // a generation may end another's connection meanwhile
  for (const auto& weak : running) {
    if (const auto generation = weak.lock()) generation->on_tick(now);
  }
}

void Gateway::end_generations() {
  while (!preparing_.empty()) {
    const Preparing preparing = drop(preparing_.begin()->first);
    refuse(unavailable_error("The server is shutting down."), preparing.request_id,
           *preparing.exchange);
  }
  const auto running = generations_;
  for (const auto& weak : running) {
    if (const auto generation = weak.lock()) generation->end_by_server();
  }
}

bool Gateway::idle() const {
  return preparing_.empty() &&
         std::none_of(generations_.begin(), generations_.end(), [](const auto& weak) {
           const auto generation = weak.lock();
           return generation && !generation->ended();
         });
}

}  // namespace copse
