#include "base/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

extern char** environ;

namespace copse {
namespace {

constexpr int kPollMicroseconds = 5000;
constexpr const char* kParentVariable = "COPSE_PARENT_PID";

int exit_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace

Result<std::string> program_beside_self(const std::string& name) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return Error{ErrorCode::io, name, std::strerror(errno)};
  const std::string self(path, static_cast<std::size_t>(length));
  std::string program = self.substr(0, self.rfind('/') + 1) + name;
  if (access(program.c_str(), X_OK) != 0) {
    return Error{ErrorCode::not_found, name, "the program is not beside this one"};
  }
  return program;
}

std::vector<std::string> child_environment() {
  const std::string name = std::string(kParentVariable) + "=";
  std::vector<std::string> entries{name + std::to_string(getpid())};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).rfind(name, 0) != 0) entries.emplace_back(*entry);
  }
  return entries;
}

void follow_parent(int signal) {
  // Told by the parent: asking the system alone would name the one that adopted an orphan.
  const char* told = std::getenv(kParentVariable);
  const pid_t parent = told == nullptr ? getppid() : std::atoi(told);
  unsetenv(kParentVariable);  // this process's own children have another parent
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) raise(signal);
}

Result<ChildProcess> ChildProcess::start(const std::string& program,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment = child_environment();
  std::vector<char*> envp;
  envp.reserve(environment.size() + 1);
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return Error{ErrorCode::io, program, std::strerror(failed)};
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && status_ < 0) wait(0);
}

Result<int> ChildProcess::open_pidfd() const {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (fd < 0) return Error{ErrorCode::io, "pidfd", std::strerror(errno)};
  return fd;
}

void ChildProcess::signal(int number) {
  if (pid_ > 0 && status_ < 0) kill(pid_, number);
}

bool ChildProcess::ended(int& status) {
  int raw = 0;
  if (status_ < 0 && waitpid(pid_, &raw, WNOHANG) == pid_) status_ = exit_code(raw);
  status = status_;
  return status_ >= 0;
}

int ChildProcess::wait(int milliseconds_max) {
  int status = 0;
  for (int waited = 0; !ended(status); waited += kPollMicroseconds) {
    if (waited >= milliseconds_max * 1000) kill(pid_, SIGKILL);
    usleep(kPollMicroseconds);
  }
  return status;
}

}  // namespace copse
