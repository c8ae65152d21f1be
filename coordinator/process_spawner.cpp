#include "coordinator/process_spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/process.h"
#include "transport/collective/shm.h"

namespace copse {
namespace {

constexpr int kCollectiveFd = 3;  // the descriptor's number in every worker

Error os_error(const char* what, int error) {
  const auto code = error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM
                        ? ErrorCode::resource_exhausted
                        : ErrorCode::io;
  return Error{code, what, std::strerror(error)};
}

// Owns the two attribute objects of one posix_spawn.
struct SpawnSetup {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  SpawnSetup() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  void redirect_output(const std::string& log_path) {
    if (!log_path.empty()) {
      posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_path.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    // Standard output belongs to results, and a worker has none.
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  }
  // A key pressed in the terminal reaches the coordinator alone, which ends its workers in order.
  void detach_from_terminal() {
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes,
        static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
  }
};

}  // namespace

ProcessSpawner::ProcessSpawner(boost::asio::io_context& io, ProcessSpawnerOptions options)
    : io_(io), options_(std::move(options)) {}

ProcessSpawner::~ProcessSpawner() {
  kill_all();
  for (const auto& process : processes_) {
    if (!process->reaped) waitpid(process->pid, nullptr, 0);
  }
}

Status ProcessSpawner::spawn(std::uint32_t epoch) {
  CHECK(alive() == 0);
  processes_.clear();
  ShmOptions shm;
  shm.world_size = options_.world_size;
  COPSE_TRY(const int collective_fd, create_shm_region(shm));
  Status status;
  for (int rank = 0; rank < options_.world_size && status.ok(); ++rank) {
    status = spawn_rank(epoch, rank, collective_fd);
  }
  close(collective_fd);
  if (!status.ok()) kill_all();
  return status;
}

Status ProcessSpawner::spawn_rank(std::uint32_t epoch, int rank, int collective_fd) {
  std::vector<std::string> args = {options_.program,
                                   "--rank",
                                   std::to_string(rank),
                                   "--tp",
                                   std::to_string(options_.world_size),
                                   "--epoch",
                                   std::to_string(epoch),
                                   "--endpoint",
                                   options_.endpoint,
                                   "--collective-fd",
                                   std::to_string(kCollectiveFd)};
  args.insert(args.end(), options_.worker_args.begin(), options_.worker_args.end());
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment = child_environment();
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);

  SpawnSetup setup;
  const std::string log = options_.log_dir.empty()
                              ? std::string()
                              : options_.log_dir + "/worker." + std::to_string(rank) + ".log";
  setup.redirect_output(log);
  setup.detach_from_terminal();
  posix_spawn_file_actions_adddup2(&setup.files, collective_fd, kCollectiveFd);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, options_.program.c_str(), &setup.files, &setup.attributes,
                                 argv.data(), envp.data());
  if (failed != 0) return os_error("worker", failed);

  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const int error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return os_error("pidfd", error);
  }
  auto process = std::make_shared<Process>(
      Process{rank, epoch, pid, false, boost::asio::posix::stream_descriptor(io_, pidfd)});
  processes_.push_back(process);
  watch(process);
  return {};
}

void ProcessSpawner::watch(const std::shared_ptr<Process>& process) {
  process->pidfd.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                            [this, weak = std::weak_ptr(process)](boost::system::error_code error) {
                              // Cancelled with its spawner, or of an epoch that is over.
                              const auto alive = weak.lock();
                              if (!error && alive) reap(*alive);
                            });
}

void ProcessSpawner::reap(Process& process) {
  int status = 0;
  if (waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  process.reaped = true;
  process.pidfd.close();
  RankExit exit;
  exit.epoch = process.epoch;
  exit.rank = process.rank;
  exit.signalled = WIFSIGNALED(status);
  exit.status = exit.signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  if (listener_ != nullptr) listener_->on_worker_exit(exit);
}

void ProcessSpawner::kill_all() {
  for (const auto& process : processes_) {
    // A pid that is not reaped cannot be another process's.
    if (!process->reaped) kill(process->pid, SIGKILL);
  }
}

int ProcessSpawner::alive() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                        [](const auto& process) { return !process->reaped; }));
}

std::int32_t ProcessSpawner::pid(int rank) const {
  for (const auto& process : processes_) {
    if (process->rank == rank) return process->pid;
  }
  return 0;
}

}  // namespace copse
