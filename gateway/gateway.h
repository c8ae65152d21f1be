#pragma once
// The gateway without its sockets: what each route answers, and the generations that run.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "gateway/exchange.h"
#include "gateway/generation.h"
#include "gateway/http_message.h"
#include "gateway/metrics.h"
#include "gateway/routes.h"
#include "gateway/text_model.h"
#include "transport/client/engine_client.h"

namespace copse {

class Gateway {
 public:
  struct World {
    EngineClient& engine;
    const TextModel& model;
    const Clock& clock;
    Random& random;
  };
  // `model_name` is the id that clients use.
  Gateway(World world, std::string model_name);

  void handle(const Route& route, const HttpRequest& request, std::shared_ptr<Exchange> exchange);
  // Once a second: keep-alives of silent streams.
  void on_tick(Instant now);

  // /health says draining, new generations get 503; the running ones go on.
  void begin_drain() { draining_ = true; }
  // Error events to those that still run.
  void end_generations();
  bool idle() const;

  std::uint64_t next_request_number() { return world_.random.next(); }
  void count_connections(std::function<std::size_t()> count) { connections_ = std::move(count); }

 private:
  template <class Request>
  void generate(Result<Request> parsed, ReplyKind kind, const HttpRequest& request,
                std::shared_ptr<Exchange> exchange);
  std::optional<ApiError> refusal(const std::string& model) const;
  const char* state() const;
  HttpResponse health() const;

  World world_;
  std::string model_name_;
  std::int64_t started_;  // seconds since 1970
  Metrics metrics_;
  std::vector<std::weak_ptr<Generation>> generations_;
  std::function<std::size_t()> connections_ = [] { return std::size_t{0}; };
  bool draining_ = false;
};

}  // namespace copse
