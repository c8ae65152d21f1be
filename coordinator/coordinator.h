#pragma once
// The coordinator: an actor that owns the truth about every request, plans each step and supervises
// the workers. Everything that it needs of the world is passed in.
#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/gateways.h"
#include "coordinator/request_table.h"
#include "coordinator/spawner.h"
#include "coordinator/step_loop.h"
#include "coordinator/streams.h"
#include "coordinator/worker_group.h"
#include "scheduler/scheduler.h"
#include "transport/actor/actor.h"

namespace copse {

struct CoordinatorOptions {
  int world_size = 1;
  std::string build;  // of this program: workers and gateways must have the same
  SchedulerOptions scheduler;
};

class Coordinator final : private GroupListener, private ExitListener {
 public:
  using Receives =
      MessageList<RegisterWorker, LoadProgress, WorkerReady, StepResult, WorkerHeartbeat,
                  WorkerFailed, RegisterGateway, Submit, Cancel, GatewayHeartbeat>;

  // One link to workers and gateways alike: who is not registered as the one or the other is not
  // heard as such.
  Coordinator(CoordinatorOptions options, Link& link, Spawner& spawner, const Clock& clock);

  void start() { workers_.start(); }
  // Finish what is open within limits::drain_ms, then end with status 0. The second call: now, 130.
  void drain();
  // The process's exit status, once there is one.
  std::optional<int> exit_code() const { return exit_code_; }

  // From workers.
  void on(const PeerId& from, const RegisterWorker& message) { workers_.on(from, message); }
  void on(const PeerId& from, const LoadProgress& message) { workers_.on(from, message); }
  void on(const PeerId& from, const WorkerReady& message) { workers_.on(from, message); }
  void on(const PeerId& from, const WorkerHeartbeat& message) { workers_.on(from, message); }
  void on(const PeerId& from, const WorkerFailed& message) { workers_.on(from, message); }
  void on(const PeerId& from, const StepResult& message) { steps_.on(from, message); }

  // From gateways.
  void on(const PeerId& from, const RegisterGateway& message);
  void on(const PeerId& from, const Submit& message);
  void on(const PeerId& from, const Cancel& message);
  void on(const PeerId& from, const GatewayHeartbeat& message);

  void on_peer_lost(const PeerId& peer);
  void on_tick(Instant now);

  EngineStatus status() const;
  const Scheduler& scheduler() const { return scheduler_; }
  std::size_t open_requests() const { return requests_.size(); }
  std::size_t gateways() const { return gateways_.size(); }
  // Requests of gateways that are not connected (any more): none, after every event.
  std::size_t orphan_requests() const;

 private:
  void on_group_ready(const WorkerReady& bounds) override;
  void on_group_lost(const std::string& cause) override;
  void on_group_failed(const std::string& cause, int exit_code) override;
  void on_worker_exit(const RankExit& exit) override { workers_.on_worker_exit(exit); }

  std::optional<Refusal> unavailable() const;
  GatewayWelcome welcome() const;
  void lose_gateway(const PeerId& peer);
  void end_all(FinishReason reason, const std::string& error);
  void end_slow(SequenceId id);
  void continue_drain(Instant now);
  void check_at_rest();
  void tell_status();

  CoordinatorOptions options_;
  const Clock& clock_;
  Link& link_;
  Scheduler scheduler_;
  RequestTable requests_;
  Gateways gateways_;
  Streams streams_;
  WorkerGroup workers_;
  StepLoop steps_;

  GroupState state_ = GroupState::loading;
  std::optional<WorkerReady> bounds_;  // of the last group that was ready
  std::string failure_;
  std::optional<int> exit_code_;
  int exit_code_when_told_ = 0;  // after failure, once the gateways had time to hear of it
  std::optional<Instant> exit_at_;
  std::optional<Instant> drain_since_;
  bool shutting_down_ = false;
  bool was_idle_ = true;
  Instant last_status_{};
};

}  // namespace copse
