#include "transport/actor/run_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace copse {
namespace {

namespace fs = std::filesystem;

TEST(RunDirectory, IsOursAloneAndGoesAway) {
  std::string path;
  {
    const auto directory = RunDirectory::create();
    ASSERT_TRUE(directory.ok());
    path = directory->path();
    struct stat found {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777u, 0700u);
    EXPECT_EQ(found.st_uid, geteuid());
    EXPECT_TRUE(RunDirectory::check(path).ok());
    std::ofstream(path + "/workers") << "a socket";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(RunDirectory, MovesWithItsOwner) {
  std::string path;
  {
    auto first = RunDirectory::create();
    ASSERT_TRUE(first.ok());
    path = first->path();
    const RunDirectory second(*std::move(first));
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(second.path(), path);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(RunDirectory, IsRefusedWhenOthersCanEnter) {
  const auto directory = RunDirectory::create();
  ASSERT_TRUE(directory.ok());
  for (const mode_t mode : {mode_t{0701}, mode_t{0710}, mode_t{0755}, mode_t{0777}}) {
    ASSERT_EQ(chmod(directory->path().c_str(), mode), 0);
    const Status status = RunDirectory::check(directory->path());
    ASSERT_FALSE(status.ok()) << mode;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  }
  ASSERT_EQ(chmod(directory->path().c_str(), 0700), 0);
  EXPECT_TRUE(RunDirectory::check(directory->path()).ok());
}

TEST(RunDirectory, IsRefusedWhenItsOwnerCannotUseIt) {
  const auto directory = RunDirectory::create();
  ASSERT_TRUE(directory.ok());
  for (const mode_t mode : {mode_t{0}, mode_t{0500}, mode_t{0600}}) {
    ASSERT_EQ(chmod(directory->path().c_str(), mode), 0);
    EXPECT_FALSE(RunDirectory::check(directory->path()).ok()) << mode;
  }
  ASSERT_EQ(chmod(directory->path().c_str(), 0700), 0);
}

TEST(RunDirectory, HasItsModeWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0777}, mode_t{0277}, mode_t{0}}) {
    const mode_t before = umask(mask);
    const auto directory = RunDirectory::create();
    umask(before);
    ASSERT_TRUE(directory.ok()) << mask;
    EXPECT_TRUE(RunDirectory::check(directory->path()).ok()) << mask;
  }
}

// For one test: $XDG_RUNTIME_DIR is this folder, of this mode.
class RuntimeFolder {
 public:
  explicit RuntimeFolder(mode_t mode) {
    const char* before = std::getenv("XDG_RUNTIME_DIR");
    if (before != nullptr) before_ = before;
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeFolder() {
    before_ ? setenv("XDG_RUNTIME_DIR", before_->c_str(), 1) : unsetenv("XDG_RUNTIME_DIR");
    fs::remove_all(path_);
  }
  bool holds(const RunDirectory& directory) const {
    return directory.path().rfind(path_ + "/", 0) == 0;
  }

 private:
  std::string path_ = "/tmp/run-test.XXXXXX";
  std::optional<std::string> before_;
};

TEST(RunDirectory, AvoidsAFolderWhoseEntriesOthersCanRename) {
  const auto holds = [](mode_t mode) {
    const RuntimeFolder folder(mode);
    const auto directory = RunDirectory::create();
    EXPECT_TRUE(directory.ok());
    return directory.ok() && folder.holds(*directory);
  };
  EXPECT_TRUE(holds(0700));
  EXPECT_TRUE(holds(0755));
  EXPECT_TRUE(holds(01777)) << "sticky: only its owner renames an entry";
  EXPECT_FALSE(holds(0777));
  EXPECT_FALSE(holds(0770));
  EXPECT_FALSE(holds(0702));
}

TEST(RunDirectory, IsNoLinkAndNoFile) {
  const auto directory = RunDirectory::create();
  ASSERT_TRUE(directory.ok());
  const std::string link = directory->path() + "/link";
  fs::create_directory_symlink(directory->path(), link);
  EXPECT_FALSE(RunDirectory::check(link).ok());
  std::ofstream(directory->path() + "/file") << "x";
  EXPECT_FALSE(RunDirectory::check(directory->path() + "/file").ok());
  EXPECT_FALSE(RunDirectory::check(directory->path() + "/nothing").ok());
}

TEST(RunDirectory, SweepsThoseOfDeadProcesses) {
  const auto mine = RunDirectory::create();
  ASSERT_TRUE(mine.ok());
  const fs::path base = fs::path(mine->path()).parent_path();
  // No process has this number: the kernel's largest is 2^22.
  const fs::path dead = base / "copse-2000000000.abcdef";
  fs::create_directory(dead);
  fs::permissions(dead, fs::perms::owner_all);
  const auto next = RunDirectory::create();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(mine->path()));
}

}  // namespace
}  // namespace copse
