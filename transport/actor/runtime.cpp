#include "transport/actor/runtime.h"

#include <zmq.h>

#include <csignal>
#include <vector>

#include "base/check.h"
#include "transport/actor/asio.h"

namespace copse {
namespace asio = boost::asio;

namespace {

constexpr auto kTick = std::chrono::milliseconds(20);

}  // namespace

struct ProcessRuntime::Parts {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> busy{io.get_executor()};
  asio::steady_timer tick{io};
  asio::signal_set signals{io};
  std::vector<std::function<void(Instant)>> tick_tasks;
  std::function<void(int)> signal_task;
  int signal_count = 0;
  void* zmq = nullptr;
};

ProcessRuntime::ProcessRuntime() : parts_(std::make_unique<Parts>()) {
  // Older libraries can be brought down from a socket (CVE-2019-13132 and others). Whoever installs
  // one behind a finished build ends here.
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_version(&major, &minor, &patch);
  CHECK(ZMQ_MAKE_VERSION(major, minor, patch) >= ZMQ_MAKE_VERSION(4, 3, 4));
  parts_->zmq = zmq_ctx_new();
  CHECK(parts_->zmq != nullptr);
  CHECK(zmq_ctx_set(parts_->zmq, ZMQ_IO_THREADS, 1) == 0);
}

ProcessRuntime::~ProcessRuntime() {
  // Links close their sockets first; LINGER is bounded, so this returns.
  void* zmq = parts_->zmq;
  parts_.reset();
  zmq_ctx_term(zmq);
}

asio::io_context& ProcessRuntime::io() {
  return parts_->io;
}
void* ProcessRuntime::zmq_context() {
  return parts_->zmq;
}

void ProcessRuntime::post(std::function<void()> task) {
  asio::post(parts_->io, std::move(task));
}

void ProcessRuntime::on_tick(std::function<void(Instant)> task) {
  parts_->tick_tasks.push_back(std::move(task));
  if (parts_->tick_tasks.size() == 1) schedule_tick();
}

void ProcessRuntime::schedule_tick() {
  parts_->tick.expires_after(kTick);
  parts_->tick.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    schedule_tick();
    for (const auto& task : parts_->tick_tasks) task(clock_.now());
  });
}

void ProcessRuntime::on_stop_signal(std::function<void(int)> task) {
  parts_->signal_task = std::move(task);
  parts_->signals.add(SIGTERM);
  parts_->signals.add(SIGINT);
  wait_signal();
}

void ProcessRuntime::wait_signal() {
  parts_->signals.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    wait_signal();
    parts_->signal_task(++parts_->signal_count);
  });
}

void ProcessRuntime::on_readable(int fd, std::function<void()> task) {
  auto descriptor = std::make_shared<asio::posix::stream_descriptor>(parts_->io, fd);
  descriptor->async_wait(asio::posix::stream_descriptor::wait_read,
                         [descriptor, task = std::move(task)](const auto& error) {
                           if (!error) task();
                         });
}

void ProcessRuntime::run() {
  parts_->io.run();
}
void ProcessRuntime::stop() {
  parts_->io.stop();
}
void ProcessRuntime::restart() {
  parts_->io.restart();
}

}  // namespace copse
