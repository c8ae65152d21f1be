#pragma once
// Supervision of the tensor-parallel group: registration, the ready barrier, liveness, agreement on
// every step, and its restart as a whole under a new epoch (docs/protocol.md).
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/spawner.h"
#include "transport/actor/actor.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"
#include "transport/messages/to_worker.h"

namespace copse {

class GroupListener {
 public:
  virtual ~GroupListener() = default;
  // All ranks are ready; `bounds` is what all of them allow.
  virtual void on_group_ready(const WorkerReady& bounds) = 0;
  // A new group of the next epoch is on its way; no result of the old one will be returned.
  virtual void on_group_lost(const std::string& cause) = 0;
  // The end: restarts would not help, or did not.
  virtual void on_group_failed(const std::string& cause, int exit_code) = 0;
};

struct WorkerGroupOptions {
  int world_size = 1;
  std::string build;
};

class WorkerGroup {
 public:
  WorkerGroup(WorkerGroupOptions options, Link& link, Spawner& spawner, const Clock& clock,
              GroupListener& listener);

  void start();
  bool ready() const { return state_ == State::ready; }
  std::uint32_t epoch() const { return epoch_; }
  std::uint64_t restarts() const { return restarts_; }
  const std::string& cause() const { return cause_; }
  std::vector<RankStatus> ranks() const;
  Instant lost_at() const { return lost_at_; }

  // The same bytes to every rank. A rank that cannot take them ends the epoch.
  void send(const StepPlan& plan);
  // The step's result once all ranks reported it alike: rank 0's, with the slowest rank's total
  // time. Nothing while one is missing. Unequal digests end the epoch; the rank is named.
  std::optional<StepResult> agreed(const PeerId& from, const StepResult& result);

  void on(const PeerId& from, const RegisterWorker& message);
  void on(const PeerId& from, const LoadProgress& message);
  void on(const PeerId& from, const WorkerReady& message);
  void on(const PeerId& from, const WorkerHeartbeat& message);
  void on(const PeerId& from, const WorkerFailed& message);
  void on_peer_lost(const PeerId& peer);
  void on_worker_exit(const RankExit& exit);
  void on_tick(Instant now);

  // Ends the epoch: kill all ranks, then start the next.
  void fail(const std::string& cause, bool permanent = false, int exit_code = 1);
  // Orderly end: Shutdown to all, SIGKILL later to those that stay.
  void shut_down();
  void kill();
  bool gone() const { return spawner_.alive() == 0; }

 private:
  enum class State : std::uint8_t { idle, loading, ready, stopping, shutting_down, failed };
  struct Rank {
    std::optional<PeerId> peer;
    std::optional<WorkerReady> bounds;
    RankStatus status;
    Instant last_heard{};
    std::uint32_t running_ms = 0;  // of its running step, as of its last heartbeat
    std::string stage;
    int logged_quarter = -1;
    std::optional<RankExit> exit;
    bool lost = false;  // its connection ended
    Instant gone_at{};  // when it exited or was lost, whichever was seen first
  };
  struct Pending {
    StepId step = 0;
    bool prefills = false;
    bool warned = false;
    Instant since{};  // when it became the oldest unanswered step
    std::vector<std::optional<StepResult>> results;
    int reported = 0;
  };

  void spawn_next();
  Rank* rank_of(const PeerId& from, std::uint32_t epoch);
  std::optional<std::string> refusal(const PeerId& from, const RegisterWorker& message) const;
  void check_ready();
  void check_exits(Instant now);
  void check_silence(Instant now);
  void check_step(Instant now);
  void check_load(Instant now);
  std::string late_ranks(const Pending& pending) const;

  WorkerGroupOptions options_;
  Link& link_;
  Spawner& spawner_;
  const Clock& clock_;
  GroupListener& listener_;
  State state_ = State::idle;
  std::uint32_t epoch_ = 0;
  std::vector<Rank> ranks_;
  std::deque<Pending> pending_;
  std::deque<Instant> failures_;
  std::string cause_;
  std::uint64_t restarts_ = 0;
  Instant spawn_not_before_{};
  Instant loading_since_{};
  Instant lost_at_{};
  Instant shut_down_at_{};
};

}  // namespace copse
