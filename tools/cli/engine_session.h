#pragma once
// One engine of real processes, started for one command: run directory, coordinator (which starts
// the workers), and this process as its gateway.
#include <functional>
#include <memory>
#include <optional>

#include "base/process.h"
#include "tools/cli/engine_options.h"
#include "tools/cli/outcome.h"
#include "transport/actor/run_directory.h"
#include "transport/actor/zmq_links.h"
#include "transport/client/engine_client.h"

namespace copse::cli {

class EngineSession {
 public:
  // Starts the processes; progress goes to standard error if `progress`.
  static Result<std::unique_ptr<EngineSession>> start(const EngineOptions& options, bool progress);
  ~EngineSession();  // ends them in order

  // Runs the loop until the workers are ready. unavailable: they failed, with their cause and, if
  // it is the model's folder, with kBadModel.
  Outcome wait_ready();
  // Runs the loop until `done` holds, the coordinator dies or the user interrupts (Error{aborted}).
  Status run_until(const std::function<bool()>& done);

  EngineClient& client() { return *client_; }
  double load_s() const { return load_s_; }

 private:
  explicit EngineSession(bool progress);
  Status open(const EngineOptions& options);
  Status connect();
  Outcome failed();

  std::optional<RunDirectory> run_directory_;
  std::optional<ChildProcess> coordinator_;
  bool progress_;
  double load_s_ = 0;
  ProcessRuntime runtime_;
  SeededRandom random_{entropy_seed()};
  std::unique_ptr<DealerLink> link_;
  std::unique_ptr<EngineClient> client_;
  std::function<bool()> done_;
  bool interrupted_ = false;
  bool coordinator_died_ = false;
};

}  // namespace copse::cli
