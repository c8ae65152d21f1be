#include "tools/cli/bench_ab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tools/cli/bench_context.h"

namespace copse::cli {
namespace {

using ::testing::HasSubstr;

BenchContextOptions embedded_pair(const std::string& ab) {
  BenchContextOptions options;
  options.engine.model = "models/sapling";
  options.engine.drafter = "models/sapling-dflash";
  options.ab = ab;
  return options;
}

// Why the comparison is refused; empty if it is not.
std::string refusal(const BenchContextOptions& options) {
  const auto sides = bench_sides(options);
  if (sides.ok()) return "";
  EXPECT_EQ(sides.error().code, ErrorCode::invalid_argument);
  return sides.error().field + ": " + sides.error().message;
}

TEST(BenchAb, ParsesTheSwitch) {
  const auto parsed = parse_switch("verify-kernel=fast,naive");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ((*parsed).key, "verify-kernel");
  EXPECT_EQ((*parsed).a, "fast");
  EXPECT_EQ((*parsed).b, "naive");
  for (const char* wrong : {"", "draft", "draft=tree", "=a,b", "draft=tree,", "draft=,tree",
                            "draft=none,tree,chain", "draft=tree,tree", "a,b=c"}) {
    EXPECT_FALSE(parse_switch(wrong).ok()) << wrong;
  }
}

// A flag that the record does not know could differ unseen.
TEST(BenchAb, TheConfigurationNamesEveryEngineFlag) {
  EngineOptions options;
  CLI::App app;
  app.set_help_flag();
  add_engine_options(app, options);
  const Json recorded = configuration(options);
  for (const CLI::Option* option : app.get_options()) {
    EXPECT_TRUE(recorded.contains(option->get_lnames().front())) << option->get_name();
  }
  EXPECT_EQ(recorded.size(), app.get_options().size());
}

TEST(BenchAb, EverySwitchChangesTheRecordInItsKeyAlone) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"verify-kernel", "naive"},
                                   {"draft", "none"},
                                   {"enforce-eager", "true"},
                                   {"disable-cuda-graph", "true"},
                                   {"dtype", "float32"},
                                   {"load-format", "dummy"},
                                   {"tensor-parallel-size", "2"},
                                   {"gpu-memory-utilization", "0.5"},
                                   {"budget", "8"},
                                   {"prefill-chunk", "128"}}) {
    EngineOptions options;
    options.device.device = "cuda";
    const auto changed = with_switch(options, key, value);
    ASSERT_TRUE(changed.ok()) << key;
    const Status status =
        check_one_difference(configuration(options), configuration(*changed), first_name(key));
    EXPECT_TRUE(status.ok()) << key << ": " << (status.ok() ? "" : status.error().message);
  }
}

TEST(BenchAb, TwoSidesThatDifferInTheKeyAlone) {
  const auto sides = bench_sides(embedded_pair("draft=none,tree"));
  ASSERT_TRUE(sides.ok());
  ASSERT_EQ((*sides).size(), 2u);
  EXPECT_EQ((*sides)[0].engine.draft, "none");
  EXPECT_EQ((*sides)[1].engine.draft, "tree");
  EXPECT_EQ((*sides)[1].name, "draft=tree");
}

TEST(BenchAb, RefusesWhatElseWouldDiffer) {
  EXPECT_THAT(refusal(embedded_pair("verify-kernel=fast,quick")), HasSubstr("quick"));
  EXPECT_THAT(refusal(embedded_pair("speed=1,2")), HasSubstr("speed is no flag of the engine"));
  EXPECT_THAT(refusal(embedded_pair("model=a,b")), HasSubstr("not two models"));
  EXPECT_THAT(refusal(embedded_pair("model-path=a,b")), HasSubstr("not two models"));
  // The machine takes both numbers of threads back to its cores.
  EXPECT_THAT(refusal(embedded_pair("threads=255,256")), HasSubstr("do not differ"));
  // One engine against itself would be a comparison of noise.
  EXPECT_THAT(refusal(embedded_pair("verify-kernel=fast,naive")), HasSubstr("--device cuda"));
  EXPECT_THAT(refusal(embedded_pair("enforce-eager=false,true")), HasSubstr("--device cuda"));
  // Without a drafter nothing is drafted, whatever was asked for.
  BenchContextOptions without = embedded_pair("draft=none,auto");
  without.engine.drafter.clear();
  EXPECT_THAT(refusal(without), HasSubstr("draft is \"none\" on both"));
}

TEST(BenchAb, NamesEveryOtherDifference) {
  const Json a = {{"draft", "none"}, {"tp", 1}, {"threads", 2}, {"gone", true}};
  const Json b = {{"draft", "tree"}, {"tp", 2}, {"threads", 1}};
  const Status status = check_one_difference(a, b, "tp");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("draft (\"none\" and \"tree\")"));
  EXPECT_THAT(status.error().message, HasSubstr("threads (2 and 1)"));
  EXPECT_THAT(status.error().message, HasSubstr("gone (true and nothing)"));
  EXPECT_THAT(status.error().message, ::testing::Not(HasSubstr("tp (")));
}

}  // namespace
}  // namespace copse::cli
