#pragma once
// The world of the actors of one process: one loop on one thread, with timers and ZeroMQ links on
// it. Everything an actor sees happens on the thread that calls run().
#include <functional>
#include <memory>

#include "base/clock.h"

namespace boost::asio {
class io_context;
}

namespace copse {

class ProcessRuntime {
 public:
  ProcessRuntime();
  ~ProcessRuntime();
  ProcessRuntime(const ProcessRuntime&) = delete;
  ProcessRuntime& operator=(const ProcessRuntime&) = delete;

  const Clock& clock() const { return clock_; }
  boost::asio::io_context& io();
  void* zmq_context();  // one I/O thread; sockets of other contexts cannot meet over inproc

  // From any thread: runs on the loop's thread, later.
  void post(std::function<void()> task);
  // Every 20 ms from now on.
  void on_tick(std::function<void(Instant)> task);
  // SIGTERM and SIGINT, counted from 1.
  void on_stop_signal(std::function<void(int count)> task);
  // A child's or parent's death and the like: runs once when the descriptor becomes readable. The
  // descriptor is closed afterwards.
  void on_readable(int fd, std::function<void()> task);

  void run();      // until stop()
  void stop();     // from any thread
  void restart();  // before another run()

 private:
  struct Parts;
  void schedule_tick();
  void wait_signal();
  SteadyClock clock_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace copse
