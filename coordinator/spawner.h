#pragma once
// How the coordinator starts and ends its workers: processes in production, actors in the
// simulator.
#include <cstdint>

#include "base/result.h"

namespace copse {

struct RankExit {
  std::uint32_t epoch = 0;
  int rank = 0;
  bool signalled = false;  // status is the signal's number
  int status = 0;
};

// Called from the event loop, never from inside a call of Spawner.
class ExitListener {
 public:
  virtual ~ExitListener() = default;
  virtual void on_worker_exit(const RankExit& exit) = 0;
};

class Spawner {
 public:
  virtual ~Spawner() = default;
  virtual void set_listener(ExitListener* listener) = 0;
  // Starts every rank of a new epoch; none of an older one may be alive. After an error those that
  // were started are killed.
  virtual Status spawn(std::uint32_t epoch) = 0;
  // SIGKILL to all that live. Their exits are reported as any other.
  virtual void kill_all() = 0;
  // Processes that were started and are not reaped yet.
  virtual int alive() const = 0;
  // 0: unknown. A worker that registers must be the one that was started.
  virtual std::int32_t pid(int rank) const = 0;
};

}  // namespace copse
