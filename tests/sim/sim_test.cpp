// The system simulation: COPSE_SIM_SEEDS seeds (1000 if not set) from COPSE_SIM_FIRST (0) on. A
// failing seed replays alone: COPSE_SIM_FIRST=4711 COPSE_SIM_SEEDS=1 build/sim_test
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "tests/sim/sim_run.h"

namespace copse {
namespace {

std::uint64_t environment(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

std::string describe_failure(std::uint64_t seed, const SimOutcome& outcome) {
  std::string text = "seed " + std::to_string(seed) + ":\n";
  for (const std::string& each : outcome.violations) text += "  " + each + "\n";
  return text + outcome.trace;
}

SimOutcome run_quietly(std::uint64_t seed) {
  const bool loud = std::getenv("COPSE_SIM_LOG") != nullptr;
  spdlog::set_level(loud ? spdlog::level::info : spdlog::level::off);
  SimRun run(seed);
  return run.run();
}

TEST(Sim, EverySeedLosesAndRepeatsNothing) {
  const std::uint64_t first = environment("COPSE_SIM_FIRST", 0);
  const std::uint64_t seeds = environment("COPSE_SIM_SEEDS", 1000);
  std::uint64_t restarts = 0;
  int whole = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const SimOutcome outcome = run_quietly(seed);
    ASSERT_TRUE(outcome.violations.empty()) << describe_failure(seed, outcome);
    restarts += outcome.restarts;
    whole += outcome.whole;
  }
  std::printf("%llu seeds: %d requests answered whole, %llu restarts\n",
              static_cast<unsigned long long>(seeds), whole,
              static_cast<unsigned long long>(restarts));
  // The seeds reach what they are for.
  if (seeds < 100) return;
  EXPECT_GT(whole, static_cast<int>(5 * seeds));
  EXPECT_GT(restarts, seeds / 2);
}

TEST(Sim, TheSameSeedIsTheSameHistory) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(run_quietly(seed).hash, run_quietly(seed).hash) << seed;
  }
  EXPECT_NE(run_quietly(1).hash, run_quietly(2).hash);
}

}  // namespace
}  // namespace copse
