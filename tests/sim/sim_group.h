#pragma once
// The workers of the simulated host: the real Worker actor of every rank, over a model of the
// executor. A step completes when all ranks have brought it, as a collective does; otherwise it
// hangs and the watchdogs must act.
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/spawner.h"
#include "scheduler/testing/oracle_device.h"
#include "transport/actor/sim.h"
#include "worker/worker.h"

namespace copse {

class SimGroup;

// One rank's device and thread.
class SimExecutor final : public StepExecutor {
 public:
  SimExecutor(SimGroup& group, SimNode node, int rank, const OracleModel& model)
      : group_(group), node_(node), rank_(rank), model_(model), device_(model) {}

  void start(std::uint32_t epoch, StepSink& sink) override;
  void submit(const StepPlan& plan) override;
  void abort() override;

  SimNode node() const { return node_; }
  void hang() { hung_ = true; }                     // its next step never reaches the collective
  void flip(bool token) { flip_ = token ? 2 : 1; }  // its next result is wrong
  void complete();                                  // the collective of its oldest step is done

 private:
  void begin();

  SimGroup& group_;
  SimNode node_;
  int rank_;
  OracleModel model_;
  OracleDevice device_;
  StepSink* sink_ = nullptr;
  std::uint32_t epoch_ = 0;
  std::deque<StepPlan> queue_;
  bool running_ = false;
  bool hung_ = false;
  bool aborted_ = false;
  int flip_ = 0;
};

class SimGroup final : public Spawner {
 public:
  SimGroup(SimWorld& world, int world_size, OracleModel model, Duration step_time)
      : world_(world), world_size_(world_size), model_(std::move(model)), step_time_(step_time) {}

  void set_coordinator(SimNode node) { coordinator_ = node; }
  void set_listener(ExitListener* listener) override { listener_ = listener; }
  Status spawn(std::uint32_t epoch) override;
  void kill_all() override;
  int alive() const override;
  std::int32_t pid(int rank) const override;

  // Faults, of the group that lives now. False: there is no such process.
  bool crash(int rank);
  bool pause(int rank, Duration time);
  bool hang(int rank);
  bool flip(int rank, bool token);
  bool disconnect(int rank);

  // A result of an epoch that is over, and who sent it.
  struct Stale {
    PeerId from;
    StepResult result;
  };
  std::vector<Stale> stale_results() const;
  int flips_reported() const { return flips_reported_; }
  const std::vector<std::string>& broken_plans() const { return broken_plans_; }

  // For SimExecutor.
  SimWorld& world() { return world_; }
  void arrive(std::uint32_t epoch, StepId step, SimExecutor& executor);
  void report(std::uint32_t epoch, int rank, const StepResult& result, bool flipped);
  void report_broken_plan(const std::string& what) { broken_plans_.push_back(what); }

 private:
  struct Process {
    std::uint32_t epoch = 0;
    int rank = 0;
    std::int32_t pid = 0;
    PeerId peer;
    SimNode node = 0;
    bool alive = true;    // until its exit is reported
    bool ending = false;  // its exit is under way
    std::unique_ptr<SimExecutor> executor;
    std::unique_ptr<Worker> worker;
  };
  void start_process(std::uint32_t epoch, int rank);
  void end(Process& process, bool signalled, int status, Duration delay);
  Process* living(int rank);

  SimWorld& world_;
  int world_size_;
  OracleModel model_;
  Duration step_time_;
  SimNode coordinator_ = 0;
  ExitListener* listener_ = nullptr;
  std::uint32_t epoch_ = 0;
  std::int32_t next_pid_ = 100;
  std::vector<std::unique_ptr<Process>> processes_;  // of all epochs: callbacks may still name them
  std::map<std::pair<std::uint32_t, StepId>, std::vector<SimExecutor*>> arrived_;
  std::vector<std::pair<std::uint32_t, Stale>> results_;
  int flips_reported_ = 0;
  std::vector<std::string> broken_plans_;
};

}  // namespace copse
