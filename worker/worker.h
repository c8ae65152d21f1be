#pragma once
// The worker's actor: registers, loads, runs plans in order, sends heartbeats, and ends when its
// coordinator does. Everything that blocks is behind StepExecutor; this object never waits, so
// heartbeats go on during a step. It has no thread, socket or clock of its own.
//
//   register -> (WorkerWelcome) -> load -> WorkerReady -> StepPlan, StepPlan, ... -> Shutdown
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/clock.h"
#include "transport/actor/actor.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_worker.h"
#include "worker/step_executor.h"
#include "worker/watchdog.h"

namespace copse {

struct WorkerConfig {
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint16_t world_size = 1;
  std::int32_t pid = 0;
  std::string build;   // version and protocol
  PeerId coordinator;  // where messages go
};

// Exit status of copse-worker.
enum class WorkerExit : int {
  ok = 0,         // asked to
  failed = 1,     // a restart may help
  bad_model = 3,  // it cannot
};

class Worker final : public StepSink {
 public:
  using Receives = MessageList<WorkerWelcome, StepPlan, Shutdown>;

  // `exit` is called once, as the last thing: the process (or the simulator) ends the actor then.
  Worker(WorkerConfig config, Link& link, const Clock& clock, StepExecutor& executor,
         std::function<void(WorkerExit)> exit);

  void start();  // registers
  void on(const PeerId& from, const WorkerWelcome& welcome);
  void on(const PeerId& from, const StepPlan& plan);
  void on(const PeerId& from, const Shutdown& shutdown);
  void on_peer_lost(const PeerId& peer);
  void on_tick(Instant now);

  void on_load_progress(const LoadProgress& progress) override;
  void on_ready(const WorkerReady& ready) override;
  void on_step_done(const StepResult& result) override;
  void on_failed(const Error& error, bool permanent) override;

  std::uint64_t refused_messages() const { return refused_; }

 private:
  struct Submitted {
    StepId step = 0;
    bool prefill = false;
  };
  enum class State : std::uint8_t { registering, loading, ready, ended };

  void watch_next_step();
  void send_heartbeat(Instant now);
  void fail(const std::string& cause, WorkerExit status);
  void end(WorkerExit status);

  WorkerConfig config_;
  Link& link_;
  const Clock& clock_;
  StepExecutor& executor_;
  std::function<void(WorkerExit)> exit_;
  State state_ = State::registering;
  Watchdog watchdog_;
  std::deque<Submitted> in_flight_;  // at most limits::plans_in_flight
  StepId last_submitted_ = 0;
  StepId last_done_ = 0;
  bool any_submitted_ = false;
  bool shutting_down_ = false;
  std::uint64_t refused_ = 0;
  Instant registered_at_{};
  Instant last_heartbeat_{};
};

}  // namespace copse
