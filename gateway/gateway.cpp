#include "gateway/gateway.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/parse_request.h"

namespace copse {
namespace {

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Prepared prepare_request(const ChatRequest& request, const TextModel& model,
                         const GatewayWelcome& engine, std::uint64_t seed) {
  return prepare_chat(request, model, engine, seed);
}

Prepared prepare_request(const CompletionRequest& request, const TextModel& model,
                         const GatewayWelcome& engine, std::uint64_t seed) {
  return prepare_completion(request, model, engine, seed);
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

void Gateway::handle(const Route& route, const HttpRequest& request,
                     std::shared_ptr<Exchange> exchange) {
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
      return generate(parse_completion_request(request.body), ReplyKind::text, request, exchange);
    case Resource::chat_completions:
      return generate(parse_chat_request(request.body), ReplyKind::chat, request, exchange);
  }
}

template <class Request>
void Gateway::generate(Result<Request> parsed, ReplyKind kind, const HttpRequest& request,
                       std::shared_ptr<Exchange> exchange) {
  const auto refuse = [&](const ApiError& error) {
    metrics_.refused(error.status);
    HttpResponse response = error_response(error);
    response.headers.emplace_back("X-Request-Id", request.request_id);
    exchange->respond(std::move(response));
  };
  if (!parsed.ok()) return refuse(api_error(parsed.error()));
  if (const auto error = refusal(parsed->options.model)) return refuse(*error);
  Prepared prepared =
      prepare_request(*parsed, world_.model, *world_.engine.welcome(), world_.random.next());
  if (const auto* error = std::get_if<ApiError>(&prepared)) return refuse(*error);
  auto& plan = std::get<GenerationPlan>(prepared);
  plan.head.kind = kind;
  plan.head.id = (kind == ReplyKind::chat ? "chatcmpl-" : "cmpl-") + hex64(world_.random.next());
  plan.head.created = unix_seconds();
  plan.head.model = model_name_;
  const auto generation = std::make_shared<Generation>(
      Generation::World{world_.engine, world_.model, metrics_, world_.clock}, std::move(plan),
      request.request_id, std::move(exchange));
  std::erase_if(generations_, [](const auto& weak) { return weak.expired(); });
  generations_.push_back(generation);
  generation->start();
}

// Why no generation can start now.
std::optional<ApiError> Gateway::refusal(const std::string& model) const {
  if (!model.empty() && model != model_name_) {
    return api_error(Error{ErrorCode::not_found, "model", "This model is not served here."});
  }
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
  if (!world_.engine.connected()) return world_.engine.welcome() ? "failed" : "loading";
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
  const auto running = generations_;
  for (const auto& weak : running) {
    if (const auto generation = weak.lock()) generation->end_by_server();
  }
}

bool Gateway::idle() const {
  return std::none_of(generations_.begin(), generations_.end(), [](const auto& weak) {
    const auto generation = weak.lock();
    return generation && !generation->ended();
  });
}

}  // namespace copse
