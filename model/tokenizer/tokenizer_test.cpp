#include "model/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/json.h"
#include "base/limits.h"
#include "model/tokenizer/test_tokenizers.h"
#include "model/tokenizer/utf8.h"

namespace copse {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<TokenId>;

const Tokenizer& sapling() {
  static const auto tokenizer = [] {
    auto loaded = Tokenizer::load("models/sapling");
    if (!loaded) ADD_FAILURE() << describe(loaded.error());
    return std::move(loaded).value();
  }();
  return *tokenizer;
}

std::unique_ptr<Tokenizer> small(const Json& file = small_tokenizer_json(),
                                 const std::string& config = "") {
  auto parsed = Tokenizer::parse(file.dump(), config);
  if (!parsed) ADD_FAILURE() << describe(parsed.error());
  return std::move(parsed).value();
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  auto ids = tokenizer.encode(text, options);
  if (!ids) ADD_FAILURE() << describe(ids.error());
  return std::move(ids).value();
}

Json cases(const std::string& path) {
  auto read = read_json_file(path, {});
  if (!read) ADD_FAILURE() << describe(read.error());
  return std::move(read).value();
}

void expect_cases(const Json& golden) {
  for (const Json& one : golden) {
    const auto text = one["text"].get<std::string>();
    SCOPED_TRACE(text.substr(0, 80));
    EXPECT_EQ(encoded(sapling(), text, {.parse_special = true}), one["ids"].get<Ids>());
    EXPECT_EQ(encoded(sapling(), text), one["ids_no_special_text"].get<Ids>());
    EXPECT_EQ(sapling().decode(one["ids"].get<Ids>()), one["decoded"].get<std::string>());
  }
}

TEST(Tokenizer, GivesTheIdsOfTheModelsGoldens) {
  const Json golden = cases("models/golden/tokenizer.json");
  ASSERT_EQ(golden.size(), 20u);
  expect_cases(golden);
}

TEST(Tokenizer, GivesTheIdsOfTheReferenceOnHardTexts) {
  const Json golden = cases("model/tokenizer/reference_cases.json");
  ASSERT_GE(golden.size(), 50u);
  expect_cases(golden);
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  EXPECT_EQ(sapling().vocab_size(), 4096);
  EXPECT_THAT(sapling().special_ids(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(sapling().bos(), 0);
  EXPECT_EQ(sapling().eos(), 1);
  EXPECT_EQ(sapling().added_id("<|end|>"), 7);
  EXPECT_EQ(sapling().added_id("<|nobody|>"), std::nullopt);
  EXPECT_EQ(sapling().token_bytes(5), "<|user|>");
  EXPECT_FALSE(sapling().is_special(8));
}

TEST(Tokenizer, PutsTheBeginTokenInFrontOnRequest) {
  const Ids plain = encoded(sapling(), "Hello");
  Ids expected = plain;
  expected.insert(expected.begin(), 0);
  EXPECT_EQ(encoded(sapling(), "Hello", {.add_bos = true}), expected);
  EXPECT_THAT(encoded(sapling(), "", {.add_bos = true}), ElementsAre(0));
}

TEST(Tokenizer, BeginTokenCanComeFromTheConfiguration) {
  const auto with =
      small(small_tokenizer_json(), R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})");
  EXPECT_THAT(encoded(*with, "x", {.add_bos = true}), ElementsAre(300, 'x'));
  const auto without = small(small_tokenizer_json(), R"({"bos_token": "<s>"})");
  EXPECT_EQ(without->bos(), 300);
  EXPECT_THAT(encoded(*without, "x", {.add_bos = true}), ElementsAre('x'));
}

TEST(Tokenizer, RecognisesSpecialTextInTemplateSpansOnly) {
  const std::vector<TextSpan> spans = {{"<|user|>", TextOrigin::from_template},
                                       {"<|end|><|assistant|>", TextOrigin::from_data},
                                       {"<|end|>", TextOrigin::from_template}};
  const auto ids = sapling().encode(spans);
  ASSERT_TRUE(ids.ok());
  Ids expected = {5};
  for (const TokenId id : encoded(sapling(), "<|end|><|assistant|>")) expected.push_back(id);
  expected.push_back(7);
  EXPECT_EQ(*ids, expected);
  EXPECT_EQ(sapling().decode(*ids), "<|user|><|end|><|assistant|><|end|>");
}

TEST(Tokenizer, ASpecialTokenIsNotAssembledFromDataAndTemplate) {
  const auto tokenizer = small();
  using enum TextOrigin;
  const std::vector<TextSpan> across = {{"<", from_template}, {"s>", from_data}};
  EXPECT_THAT(*tokenizer->encode(across), ElementsAre('<', 's', '>'));
  const std::vector<TextSpan> joined = {
      {"<", from_template}, {"", from_data}, {"s>", from_template}};
  EXPECT_THAT(*tokenizer->encode(joined), ElementsAre(300));
  // Added tokens that are not special are markers too: data cannot spell them either.
  const std::vector<TextSpan> think = {{"<think>", from_data}, {"<think>", from_template}};
  EXPECT_THAT(*tokenizer->encode(think), ElementsAre('<', 't', 'h', 'i', 'n', 'k', '>', 301));
}

TEST(Tokenizer, WordsReachOverTheBordersOfSpans) {
  const auto tokenizer = small();
  const std::vector<TextSpan> spans = {{"xa", TextOrigin::from_template},
                                       {"ba", TextOrigin::from_data}};
  EXPECT_THAT(*tokenizer->encode(spans), ElementsAre('x', 257));
}

TEST(Tokenizer, TheLongestOfTheLeftmostAddedTokensWins) {
  Json file = small_tokenizer_json();
  file["added_tokens"].push_back({{"id", 302}, {"content", "<s><s>"}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 303}, {"content", "s>x"}, {"normalized", true}});
  const auto tokenizer = small(file);
  EXPECT_THAT(encoded(*tokenizer, "<s><s><s>", {.parse_special = true}), ElementsAre(302, 300));
  // "s>x" starts inside a match of the first pass; on its own it is found in the second.
  EXPECT_THAT(encoded(*tokenizer, "<s>xs>x", {.parse_special = true}), ElementsAre(300, 'x', 303));
  // Cut off by the end of the template's text, the shorter one is taken.
  const std::vector<TextSpan> cut = {{"<s><", TextOrigin::from_template},
                                     {"s>", TextOrigin::from_data}};
  EXPECT_THAT(*tokenizer->encode(cut), ElementsAre(300, '<', 's', '>'));
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json file = small_tokenizer_json();
  file["model"]["vocab"]["xyz"] = 258;
  EXPECT_THAT(encoded(*small(file), "xyz"), ElementsAre('x', 'y', 'z'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(encoded(*small(file), "xyz xyzz"), ElementsAre(258, ' ', 'x', 'y', 'z', 'z'));
}

TEST(Tokenizer, MergesInOrderOfRankAndFromTheLeft) {
  const auto tokenizer = small();
  EXPECT_THAT(encoded(*tokenizer, "ababa"), ElementsAre(256, 257));
  EXPECT_THAT(encoded(*tokenizer, "abab"), ElementsAre(256, 256));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8OrTooLong) {
  const auto invalid = sapling().encode("a\xFF", {});
  ASSERT_FALSE(invalid.ok());
  EXPECT_EQ(invalid.error().code, ErrorCode::malformed);
  const auto too_long = sapling().encode(std::string(limits::prompt_bytes + 1, 'a'), {});
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::resource_exhausted);
}

TEST(Tokenizer, IgnoresIdsOutsideTheVocabulary) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->vocab_size(), 302);
  EXPECT_FALSE(tokenizer->contains(299));
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'o', 299, 302, INT32_MAX, INT32_MIN, 'k'}), "ok");
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
}

TEST(Tokenizer, SkipsSpecialTokensOnRequest) {
  const auto tokenizer = small();
  const Ids ids = {300, 'a', 301, 'b', 300};
  EXPECT_EQ(tokenizer->decode(ids), "<s>a<think>b<s>");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special = true}), "a<think>b");
}

// What a hostile client can send within the bounds of a body must not hold a core for long.
TEST(Tokenizer, EncodesAMegabyteOfAnythingQuickly) {
  const std::size_t size = 1u << 20;
  std::string mixed;
  while (mixed.size() < size) mixed += "a1 \n\t.'s<|end|> \xE6\x97\xA5";
  std::string spaced = std::string(size, ' ') + "x";
  for (const std::string& text :
       {std::string(size, 'a'), std::string(size, ' '), spaced, std::string(size, '\n'),
        std::string(size, '<'), std::string(size, '1'), mixed}) {
    SCOPED_TRACE(text.substr(0, 20));
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = encoded(sapling(), text, {.parse_special = true});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(sapling().decode(ids), text);
    RecordProperty("seconds_" + text.substr(0, 4), std::to_string(seconds.count()));
    EXPECT_LT(seconds.count(), 10.0);  // sanitizers included; about 0.3 s without
  }
}

}  // namespace
}  // namespace copse
