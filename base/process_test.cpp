#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace copse {
namespace {

constexpr const char* kVariable = "COPSE_PARENT_PID";

// The wait status of a child that does this and then ends by itself with 0.
int status_of_child(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    act();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ChildEnvironment, NamesThisProcessAlone) {
  setenv(kVariable, "1", 1);  // as this process was told of its own parent
  const std::vector<std::string> entries = child_environment();
  unsetenv(kVariable);
  const std::string prefix = std::string(kVariable) + "=";
  EXPECT_EQ(std::count_if(entries.begin(), entries.end(),
                          [&](const std::string& entry) { return entry.rfind(prefix, 0) == 0; }),
            1);
  EXPECT_NE(std::find(entries.begin(), entries.end(), prefix + std::to_string(getpid())),
            entries.end());
}

// Who starts it may die before it asks for its parent; another process has adopted it then.
TEST(FollowParent, EndsAnOrphanAtOnce) {
  const int status = status_of_child([] {
    setenv(kVariable, std::to_string(getpid()).c_str(), 1);  // surely not its parent
    follow_parent(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(FollowParent, LetsLiveWhoseParentLives) {
  const std::string parent = std::to_string(getpid());
  for (const bool told : {true, false}) {
    EXPECT_EQ(status_of_child([&] {
                if (told) setenv(kVariable, parent.c_str(), 1);
                follow_parent(SIGKILL);
                if (std::getenv(kVariable) != nullptr) _exit(1);  // its children's would be wrong
              }),
              0);
  }
}

TEST(FollowParent, EndsWithTheParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  status_of_child([&] {
    int ready[2];
    if (pipe(ready) != 0) _exit(1);
    if (fork() == 0) {
      follow_parent(SIGKILL);
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) _exit(1);
  });
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // the end of file: nobody holds the other end
  close(ends[0]);
}

}  // namespace
}  // namespace copse
