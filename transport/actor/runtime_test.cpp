#include "transport/actor/runtime.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

namespace copse {
namespace {

TEST(ProcessRuntime, RunsTasksOfOtherThreadsOnItsOwn) {
  ProcessRuntime runtime;
  std::thread::id ran_on;
  int ran = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      runtime.post([&] {
        ran_on = std::this_thread::get_id();
        if (++ran == 1000) runtime.stop();
      });
    }
  });
  runtime.run();
  other.join();
  EXPECT_EQ(ran, 1000);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(ProcessRuntime, TicksEveryTwentyMilliseconds) {
  ProcessRuntime runtime;
  int ticks = 0;
  Instant last{};
  runtime.on_tick([&](Instant now) {
    EXPECT_GT(now, last);
    last = now;
    if (++ticks == 10) runtime.stop();
  });
  const Instant start = runtime.clock().now();
  runtime.run();
  EXPECT_GE(last - start, milliseconds(10 * 19));
}

TEST(ProcessRuntime, RunsAgainAfterAStop) {
  ProcessRuntime runtime;
  int runs = 0;
  for (int i = 0; i < 3; ++i) {
    runtime.post([&] {
      ++runs;
      runtime.stop();
    });
    runtime.restart();
    runtime.run();
  }
  EXPECT_EQ(runs, 3);
}

TEST(ProcessRuntime, TellsWhenADescriptorBecomesReadable) {
  ProcessRuntime runtime;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  runtime.on_readable(ends[0], [&] { runtime.stop(); });
  std::thread parent([&] { close(ends[1]); });  // as the end of a parent does
  runtime.run();
  parent.join();
}

TEST(ProcessRuntime, CountsStopSignals) {
  ProcessRuntime runtime;
  int counted = 0;
  runtime.on_stop_signal([&](int count) {
    counted = count;
    if (count == 2) return runtime.stop();
    raise(SIGTERM);
  });
  raise(SIGTERM);
  runtime.run();
  EXPECT_EQ(counted, 2);
}

}  // namespace
}  // namespace copse
