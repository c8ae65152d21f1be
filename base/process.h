#pragma once
// Starting the other programs of this build.
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace copse {

// Path of program `name` in the folder of the running program.
Result<std::string> program_beside_self(const std::string& name);

// The environment for a child of this process: this process's own, and who its parent is.
std::vector<std::string> child_environment();

// Called first in a program that another of this build starts with child_environment(): `signal`
// ends it when the parent dies, and at once if the parent died before this call. Started by hand,
// it follows whoever is its parent now.
void follow_parent(int signal);

// One program that this process started. Its standard output goes to standard error, since results
// are the parent's; it stands in its own process group, so that a key pressed in the terminal
// reaches the parent alone.
class ChildProcess {
 public:
  static Result<ChildProcess> start(const std::string& program,
                                    const std::vector<std::string>& arguments);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // SIGKILL and reaped, if it still runs

  pid_t pid() const { return pid_; }
  // A descriptor that becomes readable at its death; the caller closes it.
  Result<int> open_pidfd() const;
  void signal(int number);
  // Reaps it if it is dead: its exit status, or 128 + signal. Nothing while it lives.
  bool ended(int& status);
  // Waits at most so long, then SIGKILL.
  int wait(int milliseconds_max);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  int status_ = -1;  // of the reaped process
};

}  // namespace copse
