// The proof that the simulator finds what it is for: bugs that are put in on purpose, one at a
// time, each found within COPSE_SIM_PLANTED seeds (3000 if not set). Each hunt is a process of its
// own, since a CHECK that ends it has found the bug as well.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "base/log.h"
#include "scheduler/planted_bugs.h"
#include "tests/sim/sim_run.h"

namespace copse {
namespace {

constexpr int kFound = 1;
constexpr int kNotFound = 0;

std::uint64_t seeds() {
  const char* text = std::getenv("COPSE_SIM_PLANTED");
  return text == nullptr ? 3000 : std::strtoull(text, nullptr, 10);
}

// In the child: 1 at the first seed that goes wrong.
int hunt(PlantedBug bug, std::uint64_t count) {
  spdlog::set_level(spdlog::level::off);
  planted_bug = bug;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    SimRun run(seed);
    const SimOutcome outcome = run.run();
    if (outcome.violations.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                outcome.violations[0].c_str());
    std::fflush(stdout);
    return kFound;
  }
  return kNotFound;
}

bool is_found(PlantedBug bug, std::uint64_t count) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(hunt(bug, count));
  int status = 0;
  waitpid(child, &status, 0);
  // A signal is a CHECK of ours that noticed.
  return WIFSIGNALED(status) || WEXITSTATUS(status) == kFound;
}

struct Named {
  PlantedBug bug;
  const char* name;
};
void PrintTo(const Named& each, std::ostream* out) {
  *out << each.name;
}

struct Planted : testing::TestWithParam<Named> {};

TEST_P(Planted, IsFound) {
  EXPECT_TRUE(is_found(GetParam().bug, seeds()));
}

INSTANTIATE_TEST_SUITE_P(
    Bugs, Planted,
    testing::Values(Named{PlantedBug::no_epoch_check, "NoEpochCheck"},
                    Named{PlantedBug::digests_not_compared, "DigestsNotCompared"},
                    Named{PlantedBug::double_free, "DoubleFree"},
                    Named{PlantedBug::lost_cancel, "LostCancel"},
                    Named{PlantedBug::dropped_tokens, "DroppedTokens"},
                    Named{PlantedBug::restart_off_by_one, "RestartOffByOne"},
                    Named{PlantedBug::forgotten_finish, "ForgottenFinish"},
                    Named{PlantedBug::leaked_slot, "LeakedSlot"},
                    Named{PlantedBug::orphans_kept, "OrphansKept"},
                    Named{PlantedBug::restart_forgets_drawn, "RestartForgetsDrawn"},
                    Named{PlantedBug::pause_forgotten, "PauseForgotten"},
                    Named{PlantedBug::restart_loses_one, "RestartLosesOne"}),
    [](const auto& each) { return each.param.name; });

// The canary: without a bug, nothing is found. Were everything "found", the tests above would prove
// nothing.
TEST(PlantedCanary, NothingIsFoundWhereNothingIs) {
  EXPECT_FALSE(is_found(PlantedBug::none, 30));
}

}  // namespace
}  // namespace copse
