#include "tools/cli/bench_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tools/cli/bench_prompt.h"

namespace copse::cli {
namespace {

using ::testing::HasSubstr;

ContextSample sample(int context, double ttft_s, double decode_wall_s, std::uint64_t digest = 1) {
  ContextSample made;
  made.requested = made.prompt_tokens = context;
  made.generated = 16;
  made.ttft_s = ttft_s;
  made.decode_wall_s = decode_wall_s;
  made.digest = digest;
  return made;
}

TEST(BenchTable, TheFirstTokenIsThePrefills) {
  EXPECT_DOUBLE_EQ(prefill_tok_s(sample(1024, 0.5, 0.3)), 2048);
  EXPECT_DOUBLE_EQ(decode_tok_s(sample(1024, 0.5, 0.3)), 50);
  EXPECT_DOUBLE_EQ(decode_tok_s(sample(1024, 0.5, 0)), 0);
  EXPECT_DOUBLE_EQ(prefill_tok_s(sample(1024, 0, 0.3)), 0);
}

TEST(BenchTable, Medians) {
  EXPECT_DOUBLE_EQ(median({}), 0);
  EXPECT_DOUBLE_EQ(median({9, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({9, 1, 2, 4}), 3);
}

TEST(BenchTable, ARowIsTheMedianOfItsContext) {
  const std::array samples{sample(4096, 2, 1), sample(1024, 1, 0.5), sample(1024, 9, 0.3),
                           sample(1024, 2, 0.1)};
  const auto rows = summarize(samples);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].requested, 1024);
  EXPECT_EQ(rows[0].samples, 3);
  EXPECT_DOUBLE_EQ(rows[0].ttft_s, 2);
  EXPECT_DOUBLE_EQ(rows[0].prefill_tok_s, 512);
  EXPECT_DOUBLE_EQ(rows[0].decode_tok_s, 50);
  EXPECT_DOUBLE_EQ(rows[0].decode_wall_s, 0.3);
  EXPECT_EQ(rows[1].requested, 4096);
  const std::string text = render(rows);
  EXPECT_THAT(text, HasSubstr("ctx_req prompt_tok    TTFT_s prefill_tok/s decode_tok/s gen_tok"));
  EXPECT_THAT(text, HasSubstr("    1024       1024    2.0000         512.0         50.0      16"));
  EXPECT_EQ(to_json(rows)[0]["decode_tok_s"], 50.0);
}

TEST(BenchTable, ComparesOnlyWhatBothSidesMeasured) {
  const std::array a{sample(256, 1, 0.1, 7), sample(1024, 1, 0.1, 7), sample(4096, 1, 1)};
  const std::array b{sample(256, 2, 0.2, 7), sample(1024, 1, 0.1, 8)};
  const auto ratios = compare_sides(a, b);
  ASSERT_EQ(ratios.size(), 2u);
  EXPECT_DOUBLE_EQ(ratios[0].decode, 2);
  EXPECT_DOUBLE_EQ(ratios[0].prefill, 2);
  EXPECT_TRUE(ratios[0].same_tokens);
  EXPECT_FALSE(ratios[1].same_tokens);
}

TEST(BenchPrompts, IdsNeedNoTokenizerAndComeAgain) {
  const auto prompts = BenchPrompts::make({}, "configs/models/deepseek-v2-lite", 100);
  ASSERT_TRUE(prompts.ok());
  EXPECT_THAT((*prompts).description(), HasSubstr("seeded stream"));
  const auto ids = (*prompts).prompt(500, 0);
  ASSERT_EQ(ids.size(), 500u);
  EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 100);
  EXPECT_EQ(ids, (*prompts).prompt(500, 0));
  EXPECT_NE(ids, (*prompts).prompt(500, 1));
}

TEST(BenchPrompts, TextIsRepeatedToTheLengthAskedFor) {
  const auto prompts = BenchPrompts::make({}, "models/sapling", 100000);
  ASSERT_TRUE(prompts.ok());
  EXPECT_THAT((*prompts).description(), HasSubstr("repeated text"));
  for (const int tokens : {1, 2, 1000}) {
    EXPECT_EQ((*prompts).prompt(tokens, 0).size(), static_cast<std::size_t>(tokens));
  }
  EXPECT_NE((*prompts).prompt(100, 0), (*prompts).prompt(100, 1));
  PromptOptions nowhere;
  nowhere.kind = "text";
  EXPECT_FALSE(BenchPrompts::make(nowhere, "configs/models/deepseek-v2-lite", 100).ok());
}

}  // namespace
}  // namespace copse::cli
