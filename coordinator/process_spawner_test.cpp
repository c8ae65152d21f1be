#include "coordinator/process_spawner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <vector>

namespace copse {
namespace {

struct Exits final : ExitListener {
  std::vector<RankExit> all;
  void on_worker_exit(const RankExit& exit) override { all.push_back(exit); }
};

// A shell script in the worker's place: it gets the same arguments.
struct Script {
  std::string path;
  explicit Script(const std::string& body) {
    path = testing::TempDir() + "spawner_test_worker.sh";
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    chmod(path.c_str(), 0700);
  }
};

struct World {
  boost::asio::io_context io;
  Exits exits;
  ProcessSpawner spawner;
  World(const Script& script, int world_size)
      : spawner(io, {script.path, world_size, "ipc:///nowhere", testing::TempDir(), {"--more"}}) {
    spawner.set_listener(&exits);
  }
  bool run_until_gone() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (spawner.alive() > 0 && std::chrono::steady_clock::now() < until) {
      io.run_for(std::chrono::milliseconds(10));
      io.restart();
    }
    return spawner.alive() == 0;
  }
};

TEST(ProcessSpawner, EachRankGetsItsArgumentsAndTheRegion) {
  const Script script(
      "test \"$*\" = \"--rank $2 --tp 2 --epoch 7 --endpoint ipc:///nowhere --collective-fd 3 "
      "--more\" || exit 90\n"
      "test -e /proc/self/fd/3 || exit 91\n"
      "exit $((40 + $2))");
  World world(script, 2);
  ASSERT_TRUE(world.spawner.spawn(7).ok());
  EXPECT_EQ(world.spawner.alive(), 2);
  ASSERT_TRUE(world.run_until_gone());
  ASSERT_EQ(world.exits.all.size(), 2u);
  for (const RankExit& exit : world.exits.all) {
    EXPECT_EQ(exit.epoch, 7u);
    EXPECT_FALSE(exit.signalled);
    EXPECT_EQ(exit.status, 40 + exit.rank);
  }
}

TEST(ProcessSpawner, ADeathBySignalIsSeenAtOnce) {
  World world(Script("exec sleep 100"), 2);
  ASSERT_TRUE(world.spawner.spawn(1).ok());
  const auto start = std::chrono::steady_clock::now();
  kill(world.spawner.pid(1), SIGKILL);
  while (world.exits.all.empty()) world.io.run_one();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
  EXPECT_EQ(world.exits.all[0].rank, 1);
  EXPECT_TRUE(world.exits.all[0].signalled);
  EXPECT_EQ(world.exits.all[0].status, SIGKILL);
  world.spawner.kill_all();
  EXPECT_TRUE(world.run_until_gone());
}

TEST(ProcessSpawner, NothingOutlivesItsSpawner) {
  std::int32_t pid = 0;
  {
    World world(Script("exec sleep 100"), 1);
    ASSERT_TRUE(world.spawner.spawn(1).ok());
    pid = world.spawner.pid(0);
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0) << "dead and reaped";
}

TEST(ProcessSpawner, AProgramThatIsNotThereIsAnError) {
  boost::asio::io_context io;
  ProcessSpawner spawner(io, {"/nowhere/copse-worker", 1, "ipc:///nowhere", "", {}});
  EXPECT_FALSE(spawner.spawn(1).ok());
  EXPECT_EQ(spawner.alive(), 0);
}

}  // namespace
}  // namespace copse
