#pragma once
// One simulated life of a copse: a seed decides the machine, the load and the faults; checkers
// watch all the time; then the faults stop and everything must finish.
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "coordinator/coordinator.h"
#include "tests/sim/sim_clients.h"
#include "tests/sim/sim_group.h"

namespace copse {

struct SimOutcome {
  Violations violations;
  std::uint64_t hash = 0;  // of all events
  int whole = 0;           // requests that ended by themselves with the right answer
  std::uint64_t restarts = 0;
  std::string trace;  // the last events, if something is wrong
};

class SimRun {
 public:
  explicit SimRun(std::uint64_t seed);
  SimOutcome run();

 private:
  static OracleModel model_of(Random& random);
  static CoordinatorOptions options_of(Random& random, int world_size);

  void schedule_load();
  void schedule_faults();
  void submit_one();
  void group_fault();
  void gateway_fault();
  void replay_stale();
  void slow_reader();
  void check_always();
  void check_at_rest();
  void violation(const std::string& what);
  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  Duration soon(std::int64_t ms) {
    return milliseconds(static_cast<std::int64_t>(below(static_cast<std::uint64_t>(ms))));
  }
  SimGateway* any_gateway();
  std::size_t open() const;

  SeededRandom random_;  // of the scenario; the world has its own
  OracleModel model_;
  int world_size_;
  bool chaotic_;  // faults without number: the group may fail for good
  SimWorld world_;
  SimNode node_;
  Violations violations_;
  SimGroup group_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<SimGateway>> gateways_;
  int group_faults_ = 0;  // that may end an epoch
  std::uint32_t last_stale_epoch_ = 0;
  Instant gateway_fault_at_{};
  bool long_streams_;
};

}  // namespace copse
