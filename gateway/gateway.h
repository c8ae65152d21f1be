#pragma once
// The gateway without its sockets: what each route answers, and the generations that run.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "gateway/exchange.h"
#include "gateway/generation.h"
#include "gateway/http_message.h"
#include "gateway/metrics.h"
#include "gateway/prepare.h"
#include "gateway/routes.h"
#include "gateway/text_model.h"
#include "gateway/work_queue.h"
#include "transport/client/engine_client.h"

namespace copse {

class Gateway {
 public:
  struct World {
    EngineClient& engine;
    const TextModel& model;
    const Clock& clock;
    Random& random;
    WorkQueue* work = nullptr;  // where bodies are prepared; nullptr: at once, within handle()
  };
  // `model_name` is the id that clients use.
  Gateway(World world, std::string model_name);

  void handle(const Route& route, HttpRequest request, std::shared_ptr<Exchange> exchange);
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
  // A generation request whose body is being prepared. It stays here, on the loop's thread: the
  // work itself knows its number alone.
  struct Preparing {
    std::string request_id;
    std::shared_ptr<Exchange> exchange;
    Instant arrived;
    std::shared_ptr<std::atomic<bool>> gone;  // nobody waits for it: the work may be left undone
  };
  void prepare(ReplyKind kind, HttpRequest request, std::shared_ptr<Exchange> exchange);
  void queue(std::uint64_t number, PrepareInput input, std::shared_ptr<std::atomic<bool>> gone);
  void on_prepared(std::uint64_t number, Prepared prepared);
  void start(Preparing preparing, GenerationPlan plan);
  Preparing drop(std::uint64_t number);
  void refuse(const ApiError& error, const std::string& request_id, Exchange& exchange);
  std::optional<ApiError> refusal() const;
  const char* state() const;
  HttpResponse health() const;

  World world_;
  std::string model_name_;
  std::int64_t started_;  // seconds since 1970
  Metrics metrics_;
  std::map<std::uint64_t, Preparing> preparing_;
  std::uint64_t next_preparing_ = 0;
  std::vector<std::weak_ptr<Generation>> generations_;
  std::function<std::size_t()> connections_ = [] { return std::size_t{0}; };
  bool draining_ = false;
};

}  // namespace copse
