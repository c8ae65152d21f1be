#include "gateway/server.h"

#include <spdlog/spdlog.h>

#include <optional>

#include "base/limits.h"
#include "base/random.h"
#include "gateway/gateway.h"
#include "gateway/http_listener.h"
#include "gateway/work_queue.h"
#include "transport/actor/runtime.h"
#include "transport/actor/zmq_links.h"
#include "transport/client/engine_client.h"

namespace copse {
namespace {

constexpr int kCannotStart = 1;
constexpr int kEndedAtOnce = 130;
constexpr Duration kTick = milliseconds(1000);
// After the last answer: the clients read it, and their connections close.
constexpr Duration kLastBytes = milliseconds(2000);

int report(const Error& error) {
  spdlog::critical("the gateway cannot start: {}", describe(error));
  return kCannotStart;
}

// When to stop, and with which status.
class Ending {
 public:
  Ending(ProcessRuntime& runtime, Gateway& gateway, HttpListener& listener)
      : runtime_(runtime), gateway_(gateway), listener_(listener) {}

  void on_signal(int count) {
    if (count > 1) {
      status_ = kEndedAtOnce;
      return runtime_.stop();
    }
    spdlog::info("draining: {} connections are open", listener_.connections());
    const Instant now = runtime_.clock().now();
    stop_at_ = now + milliseconds(limits::drain_ms);
    gateway_.begin_drain();
    listener_.drain();
    check(now);
  }
  void check(Instant now) {
    if (!stop_at_) return;
    if (now >= *stop_at_) gateway_.end_generations();
    if (!gateway_.idle()) return;
    if (!idle_since_) idle_since_ = now;
    if (listener_.connections() == 0 || now - *idle_since_ >= kLastBytes) runtime_.stop();
  }
  int status() const { return status_; }

 private:
  ProcessRuntime& runtime_;
  Gateway& gateway_;
  HttpListener& listener_;
  std::optional<Instant> stop_at_;     // of a drain
  std::optional<Instant> idle_since_;  // no generation runs
  int status_ = 0;
};

// Memory may hold less than was asked for. True once there was something to compare.
bool tell_context(std::uint32_t asked, const EngineClient& engine) {
  const auto& welcome = engine.welcome();
  if (!welcome) return false;
  if (welcome->context_tokens < asked) {
    spdlog::warn(
        "the longest sequence is {} tokens, not the {} of --max-model-len: the KV pages of a "
        "worker "
        "(--kv-memory-mb) hold no more",
        welcome->context_tokens, asked);
  }
  return true;
}

std::shared_ptr<HttpService> service_of(Gateway& gateway) {
  auto service = std::make_shared<HttpService>();
  service->handle = [&gateway](const Route& route, HttpRequest request,
                               std::shared_ptr<Exchange> exchange) {
    gateway.handle(route, std::move(request), std::move(exchange));
  };
  service->request_number = [&gateway] { return gateway.next_request_number(); };
  return service;
}

}  // namespace

int run_gateway(const GatewayOptions& options, const TextModel& model) {
  ProcessRuntime runtime;
  SeededRandom random(entropy_seed());
  auto link = DealerLink::connect(
      runtime, random,
      {.role = Role::gateway, .rank = 0, .endpoint = options.endpoint, .reconnect = true});
  if (!link.ok()) return report(link.error());
  EngineClient engine(**link, runtime.clock());
  WorkQueue work([&runtime](auto task) { runtime.post(std::move(task)); });
  Gateway gateway({engine, model, runtime.clock(), random, &work}, served_name(options));
  auto listener = HttpListener::open(runtime.io(), options.host, options.port, service_of(gateway));
  if (!listener.ok()) return report(listener.error());
  gateway.count_connections([&] { return (*listener)->connections(); });
  if (!options.port_file.empty()) {
    const Status written = write_port_file(options.port_file, (*listener)->port());
    if (!written.ok()) return report(written.error());
  }
  spdlog::info("listening on http://{}:{}", options.host, (*listener)->port());

  (*link)->attach(engine);
  Ending ending(runtime, gateway, **listener);
  Instant next_tick{};
  bool context_told = false;
  runtime.on_tick([&](Instant now) {
    ending.check(now);
    context_told = context_told || tell_context(options.max_model_len, engine);
    if (now < next_tick) return;
    next_tick = now + kTick;
    gateway.on_tick(now);
  });
  runtime.on_stop_signal([&](int count) { ending.on_signal(count); });
  (*listener)->start();
  runtime.run();
  (*listener)->close_all();  // sessions hold generations, and those the engine: end them first
  return ending.status();
}

}  // namespace copse
