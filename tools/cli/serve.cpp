// `copse serve`: coordinator (which starts the workers) and gateway, until a signal or until one of
// them ends.
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "base/limits.h"
#include "base/process.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_options.h"
#include "transport/actor/run_directory.h"
#include "transport/actor/runtime.h"

namespace copse::cli {
namespace {

// A little longer than a drain: the processes end by themselves before.
constexpr int kEndMilliseconds = static_cast<int>(limits::drain_ms) + 5000;
constexpr int kInterrupted = 130;

struct ServeOptions {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string port_file;
  std::string served_model_name;
};

std::vector<std::string> gateway_arguments(const ServeOptions& o,
                                           const std::string& run_directory) {
  std::vector<std::string> arguments{"--endpoint",
                                     RunDirectory::gateways_endpoint(run_directory),
                                     "--model",
                                     o.engine.model,
                                     "--served-model-name",
                                     o.served_model_name,
                                     "--host",
                                     o.host,
                                     "--port",
                                     std::to_string(o.port),
                                     "--log-level",
                                     o.engine.log_level};
  if (!o.port_file.empty()) arguments.insert(arguments.end(), {"--port-file", o.port_file});
  return arguments;
}

// Both processes, watched. One that ends by itself takes the other with it: a gateway without an
// engine serves nobody, an engine without a gateway is reached by nobody.
class Supervisor {
 public:
  Supervisor(ChildProcess coordinator, ChildProcess gateway)
      : coordinator_(std::move(coordinator)), gateway_(std::move(gateway)) {}

  Result<int> run() {
    for (ChildProcess* child : {&coordinator_, &gateway_}) {
      COPSE_TRY(const int pidfd, child->open_pidfd());
      runtime_.on_readable(pidfd, [this] { on_child_end(); });
    }
    runtime_.on_stop_signal([this](int count) { on_signal(count); });
    runtime_.run();
    return status_;
  }

 private:
  void on_signal(int count) {
    if (count > 1) return end_now();
    // The gateway first: it stops accepting and lets its streams end while the engine still runs.
    gateway_.signal(SIGTERM);
    begin_end();
  }

  void on_child_end() {
    int coordinator_status = 0, gateway_status = 0;
    const bool coordinator_ended = coordinator_.ended(coordinator_status);
    const bool gateway_ended = gateway_.ended(gateway_status);
    if (!ending_) {
      const int status = coordinator_ended ? coordinator_status : gateway_status;
      status_ = status == 0 ? 1 : status;  // nobody asked it to
    }
    if (coordinator_ended && gateway_ended) return runtime_.stop();
    (coordinator_ended ? gateway_ : coordinator_).signal(SIGTERM);
    begin_end();
  }

  void begin_end() {
    if (ending_) return;
    ending_ = true;
    const Instant deadline = runtime_.clock().now() + milliseconds(kEndMilliseconds);
    runtime_.on_tick([this, deadline](Instant now) {
      if (now > deadline) end_now();
    });
  }

  void end_now() {
    for (ChildProcess* child : {&gateway_, &coordinator_}) child->signal(SIGKILL);
    status_ = kInterrupted;
    runtime_.stop();
  }

  ProcessRuntime runtime_;
  ChildProcess coordinator_;
  ChildProcess gateway_;
  bool ending_ = false;
  int status_ = 0;
};

Result<int> run(ServeOptions& options) {
  COPSE_RETURN_IF_ERROR(complete(options.engine));
  if (options.served_model_name.empty()) {
    options.served_model_name =
        std::filesystem::path(options.engine.model + "/").parent_path().filename().string();
  }
  COPSE_TRY(const std::string coordinator, program_beside_self("copse-coordinator"));
  COPSE_TRY(const std::string gateway, program_beside_self("copse-gateway"));
  COPSE_TRY(const RunDirectory run_directory, RunDirectory::create());
  COPSE_TRY(ChildProcess engine,
            ChildProcess::start(coordinator,
                                coordinator_arguments(options.engine, run_directory.path())));
  COPSE_TRY(ChildProcess front,
            ChildProcess::start(gateway, gateway_arguments(options, run_directory.path())));
  return Supervisor(std::move(engine), std::move(front)).run();
}

}  // namespace

Run add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  options->engine.log_level = "info";
  add_engine_options(app, options->engine);
  app.add_option("--host", options->host, "Address that the gateway listens on");
  app.add_option("--port", options->port, "And its port; 0 takes a free one")
      ->check(CLI::Range(0, 65535));
  app.add_option("--port-file", options->port_file, "File that is given the port");
  app.add_option("--served-model-name", options->served_model_name,
                 "Name in requests; default: the model's folder");
  return [options] { return run(*options); };
}

}  // namespace copse::cli
