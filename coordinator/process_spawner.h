#pragma once
// The spawner of production: one process per rank on this host, watched by pidfd, so that a death
// is known within milliseconds and no zombie stays.
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/spawner.h"

namespace copse {

struct ProcessSpawnerOptions {
  std::string program;  // path of copse-worker
  int world_size = 1;
  std::string endpoint;  // where workers connect to
  std::string log_dir;   // one file per rank; empty: the coordinator's standard error
  std::vector<std::string> worker_args;  // passed on unchanged
};

class ProcessSpawner final : public Spawner {
 public:
  ProcessSpawner(boost::asio::io_context& io, ProcessSpawnerOptions options);
  // Kills and reaps what still lives.
  ~ProcessSpawner() override;
  ProcessSpawner(const ProcessSpawner&) = delete;
  ProcessSpawner& operator=(const ProcessSpawner&) = delete;

  void set_listener(ExitListener* listener) override { listener_ = listener; }
  Status spawn(std::uint32_t epoch) override;
  void kill_all() override;
  int alive() const override;
  std::int32_t pid(int rank) const override;

 private:
  struct Process {
    int rank = 0;
    std::uint32_t epoch = 0;
    std::int32_t pid = 0;
    bool reaped = false;
    boost::asio::posix::stream_descriptor pidfd;
  };
  Status spawn_rank(std::uint32_t epoch, int rank, int collective_fd);
  void watch(const std::shared_ptr<Process>& process);
  void reap(Process& process);

  boost::asio::io_context& io_;
  ProcessSpawnerOptions options_;
  ExitListener* listener_ = nullptr;
  std::vector<std::shared_ptr<Process>> processes_;  // of the last epoch
};

}  // namespace copse
