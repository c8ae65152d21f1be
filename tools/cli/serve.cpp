// `copse serve`: coordinator (which starts the workers) and gateway, until a signal or until one of
// them ends.
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/limits.h"
#include "base/process.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_options.h"
#include "tools/cli/model_folder.h"
#include "transport/actor/run_directory.h"
#include "transport/actor/runtime.h"

namespace copse::cli {
namespace {

// A little longer than a drain: the processes end by themselves before.
constexpr int kEndMilliseconds = static_cast<int>(limits::drain_ms) + 5000;

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
  if (o.engine.max_model_len > 0) {
    arguments.insert(arguments.end(), {"--max-model-len", std::to_string(o.engine.max_model_len)});
  }
  if (!o.port_file.empty()) arguments.insert(arguments.end(), {"--port-file", o.port_file});
  return arguments;
}

// Both processes, watched. One that ends by itself takes the other with it: a gateway without an
// engine serves nobody, an engine without a gateway is reached by nobody.
class Supervisor {
 public:
  // From here on a signal waits for run(), and then ends in order what was started.
  Supervisor() {
    runtime_.on_stop_signal([this](int count) { on_signal(count); });
  }

  Status start(const ServeOptions& options, const std::string& run_directory) {
    COPSE_RETURN_IF_ERROR(start(coordinator_, "copse-coordinator",
                                coordinator_arguments(options.engine, run_directory)));
    return start(gateway_, "copse-gateway", gateway_arguments(options, run_directory));
  }

  int run() {
    runtime_.run();
    return status_;
  }

 private:
  Status start(std::optional<ChildProcess>& child, const char* name,
               const std::vector<std::string>& arguments) {
    COPSE_TRY(const std::string program, program_beside_self(name));
    COPSE_TRY(ChildProcess started, ChildProcess::start(program, arguments));
    child.emplace(std::move(started));
    COPSE_TRY(const int pidfd, child->open_pidfd());
    runtime_.on_readable(pidfd, [this] { on_child_end(); });
    return {};
  }

  // Both children are there: signals are taken by run() alone.
  void on_signal(int count) {
    if (count > 1) return end_now();
    // The gateway first: it stops accepting and lets its streams end while the engine still runs.
    gateway_->signal(SIGTERM);
    begin_end();
  }

  void on_child_end() {
    int coordinator_status = 0, gateway_status = 0;
    const bool coordinator_ended = coordinator_->ended(coordinator_status);
    const bool gateway_ended = gateway_->ended(gateway_status);
    if (!ending_) {
      const int status = coordinator_ended ? coordinator_status : gateway_status;
      status_ = status == 0 ? 1 : status;  // nobody asked it to
    }
    if (coordinator_ended && gateway_ended) return runtime_.stop();
    (coordinator_ended ? gateway_ : coordinator_)->signal(SIGTERM);
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
    gateway_->signal(SIGKILL);
    coordinator_->signal(SIGKILL);
    status_ = kInterrupted;
    runtime_.stop();
  }

  ProcessRuntime runtime_;
  std::optional<ChildProcess> coordinator_;
  std::optional<ChildProcess> gateway_;
  bool ending_ = false;
  int status_ = 0;
};

Outcome run(ServeOptions& options) {
  Supervisor supervisor;
  COPSE_RETURN_IF_ERROR(complete(options.engine));
  COPSE_RETURN_IF_ERROR(check_models(options.engine));
  if (options.served_model_name.empty()) {
    options.served_model_name =
        std::filesystem::path(options.engine.model + "/").parent_path().filename().string();
  }
  COPSE_TRY(const RunDirectory run_directory, RunDirectory::create());
  COPSE_RETURN_IF_ERROR(supervisor.start(options, run_directory.path()));
  return supervisor.run();
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
