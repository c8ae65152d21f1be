#pragma once
// The 0700 folder in which one copse's sockets live. Design rule: nothing but the gateway's port is
// reachable by anyone else.
#include <string>

#include "base/result.h"

namespace copse {

class RunDirectory {
 public:
  // A new folder copse-PID.XXXXXX of mode 0700, whatever the umask, below $XDG_RUNTIME_DIR if
  // nobody else can rename what is in there, else below /tmp. Folders of dead processes of this
  // user are removed on the way.
  static Result<RunDirectory> create();
  // Checks a folder that somebody else made: ours, of mode 0700.
  static Status check(const std::string& path);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();  // removes the folder and its sockets

  const std::string& path() const { return path_; }
  static std::string workers_endpoint(const std::string& path) {
    return "ipc://" + path + "/workers";
  }
  static std::string gateways_endpoint(const std::string& path) {
    return "ipc://" + path + "/gateways";
  }

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace copse
