#include "tools/cli/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/progress_bar.h"

namespace copse::cli {
namespace {

using ::testing::Contains;
using ::testing::Not;

EngineOptions embedded_pair() {
  EngineOptions options;
  options.model = "models/sapling";
  options.drafter = "models/sapling-dflash";
  return options;
}

TEST(EngineOptions, NamesTheFlagAtFault) {
  const auto field = [](void (*spoil)(EngineOptions&)) {
    EngineOptions options = embedded_pair();
    spoil(options);
    const Status status = complete(options);
    return status.ok() ? std::string("none") : status.error().field;
  };
  EXPECT_EQ(field([](EngineOptions&) {}), "none");
  EXPECT_EQ(field([](EngineOptions& o) { o.model.clear(); }), "--model");
  EXPECT_EQ(field([](EngineOptions& o) { o.model = "nowhere"; }), "--model");
  EXPECT_EQ(field([](EngineOptions& o) { o.drafter = "nowhere"; }), "--drafter");
  EXPECT_EQ(field([](EngineOptions& o) { o.device = "cuda"; }), "--device");
  EXPECT_EQ(field([](EngineOptions& o) { o.drafter.clear(), o.draft = "tree"; }), "--drafter");
}

TEST(EngineOptions, WithoutADrafterNothingIsDrafted) {
  EngineOptions options = embedded_pair();
  options.drafter.clear();
  ASSERT_TRUE(complete(options).ok());
  EXPECT_EQ(options.draft, "none");
  EXPECT_THAT(coordinator_arguments(options, "/run"), Not(Contains("--drafter")));
}

TEST(EngineOptions, SharesTheCoresOutAmongWorkers) {
  EngineOptions options = embedded_pair();
  options.tp = 8;
  ASSERT_TRUE(complete(options).ok());
  EXPECT_GE(options.threads, 1);
  options.threads = 3;
  ASSERT_TRUE(complete(options).ok());
  EXPECT_EQ(options.threads, 3);
}

TEST(ProgressBar, ShowsTheWholeAndEachRank) {
  EngineStatus status;
  status.ranks.resize(2);
  status.ranks[0].load_done = status.ranks[0].load_total = 100;
  status.ranks[0].ready = true;
  status.ranks[1].load_done = 50;
  status.ranks[1].load_total = 100;
  EXPECT_EQ(render_progress(status), "loading  75% [###############-----]  0:ready  1:50%");
}

}  // namespace
}  // namespace copse::cli
