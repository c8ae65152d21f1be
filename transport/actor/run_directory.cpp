#include "transport/actor/run_directory.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace copse {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "copse-";

// Whoever may rename entries of a folder could put another in our directory's place: only we may,
// or, where the sticky bit is set as in /tmp, nobody but an entry's owner.
bool is_ours_to_name(const std::string& folder) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  if (access(folder.c_str(), W_OK) != 0) return false;
  const bool ours = found.st_uid == geteuid() && (found.st_mode & 022) == 0;
  return ours || (found.st_mode & S_ISVTX) != 0;
}

std::string base_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime == nullptr ? "" : runtime;
  // Unix socket paths have 107 bytes: a long base leaves no room for the names below it.
  return !folder.empty() && folder.size() < 60 && is_ours_to_name(folder) ? folder : "/tmp";
}

bool is_dead(int pid) {
  return kill(pid, 0) != 0 && errno == ESRCH;
}

void remove_stale(const std::string& base) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const int pid = std::atoi(name.c_str() + kPrefix.size());
    if (pid > 0 && is_dead(pid) && RunDirectory::check(entry.path()).ok()) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

Result<RunDirectory> RunDirectory::create() {
  const std::string base = base_folder();
  remove_stale(base);
  std::string path = base + "/" + std::string(kPrefix) + std::to_string(getpid()) + ".XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {  // creates with mode 0700
    return Error{ErrorCode::io, "run directory", "cannot be created"};
  }
  RunDirectory made(std::move(path));
  // An odd umask may have taken bits from the mode.
  if (chmod(made.path_.c_str(), S_IRWXU) != 0) {
    return Error{ErrorCode::io, "run directory", "cannot be created"};
  }
  return made;
}

Status RunDirectory::check(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return Error{ErrorCode::not_found, "run directory", "is no folder"};
  }
  if (found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
    return Error{ErrorCode::invalid_argument, "run directory", "is open to other users"};
  }
  if ((found.st_mode & S_IRWXU) != S_IRWXU) {
    return Error{ErrorCode::invalid_argument, "run directory", "is closed to its owner"};
  }
  return {};
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept : path_(std::move(other.path_)) {
  other.path_.clear();
}

RunDirectory::~RunDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace copse
