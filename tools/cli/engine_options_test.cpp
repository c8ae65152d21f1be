#include "tools/cli/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/limits.h"
#include "tools/cli/model_folder.h"
#include "tools/cli/progress_bar.h"

namespace copse::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
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
  EXPECT_EQ(field([](EngineOptions& o) { o.max_model_len = 1; }), "--max-model-len");
  EXPECT_EQ(field([](EngineOptions& o) { o.max_model_len = 2; }), "none");
  EXPECT_EQ(field([](EngineOptions& o) { o.drafter.clear(), o.draft = "tree"; }), "--drafter");
  EXPECT_EQ(field([](EngineOptions& o) { o.device.load_format = "dummy"; }), "--load-format");
}

TEST(EngineOptions, TheWayOfLoadingGoesToTheWorkers) {
  EngineOptions options = embedded_pair();
  options.device.device = "cuda";
  options.device.load_format = "dummy";
  const auto arguments = coordinator_arguments(options, "/run");
  const auto flag = std::find(arguments.begin(), arguments.end(), "--load-format");
  ASSERT_NE(flag, arguments.end());
  EXPECT_EQ(flag[1], "dummy");
  EXPECT_LT(std::find(arguments.begin(), arguments.end(), "--"), flag);
}

// Where there is a GPU the flags go to the workers; elsewhere one sentence says what is missing.
TEST(EngineOptions, CudaNeedsThisBuildsPluginAndAGpu) {
  EngineOptions options = embedded_pair();
  options.device.device = "cuda";
  const Status status = complete(options);
  if (status.ok()) {
    EXPECT_THAT(coordinator_arguments(options, "/run"), Contains("--dtype"));
    return;
  }
  EXPECT_THAT(status.error().field, HasSubstr("device"));
  EXPECT_THAT(status.error().message, HasSubstr("cuda was asked for"));
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
  options.threads = 1;
  ASSERT_TRUE(complete(options).ok());
  EXPECT_EQ(options.threads, 1);
}

TEST(EngineOptions, TakesBackThreadsThatTheMachineDoesNotHave) {
  EngineOptions options = embedded_pair();
  options.threads = limits::worker_threads;
  ASSERT_TRUE(complete(options).ok());
  EXPECT_LE(options.threads, std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_GE(options.threads, 1);
}

TEST(ModelFolder, NamesTheFolderAndTheLengthThatDoNotFit) {
  const auto failure = [](void (*spoil)(EngineOptions&)) {
    EngineOptions options = embedded_pair();
    spoil(options);
    const Outcome outcome = check_models(options);
    return outcome.ok() ? Failure{Error{ErrorCode::internal, "none", ""}, 0} : outcome.error();
  };
  EXPECT_EQ(failure([](EngineOptions&) {}).status, kSuccess);
  EXPECT_EQ(failure([](EngineOptions& o) { o.max_model_len = 4096; }).status, kSuccess);
  const Failure nowhere = failure([](EngineOptions& o) { o.model = "nowhere"; });
  EXPECT_EQ(nowhere.error.field, "--model");
  EXPECT_EQ(nowhere.status, kBadModel);
  EXPECT_EQ(failure([](EngineOptions& o) { o.drafter = "nowhere"; }).error.field, "--drafter");
  const Failure swapped = failure([](EngineOptions& o) { std::swap(o.model, o.drafter); });
  EXPECT_EQ(swapped.status, kBadModel);
  const Failure longer = failure([](EngineOptions& o) { o.max_model_len = 4097; });
  EXPECT_EQ(longer.error.field, "--max-model-len");
  EXPECT_THAT(longer.error.message, HasSubstr("max_position_embeddings of the target"));
  EXPECT_THAT(longer.error.message, HasSubstr("4096"));
  EXPECT_EQ(longer.status, kUsage);
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
