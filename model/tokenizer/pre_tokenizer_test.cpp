#include "model/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace copse {
namespace {

using ::testing::ElementsAre;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}

Json sequence(std::vector<Json> stages) {
  stages.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", stages}};
}

Json split(const Json& pattern) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}};
}

std::vector<std::string> words(const Json& value, const std::string& text) {
  const auto made = PreTokenizer::parse(value);
  if (!made) {
    ADD_FAILURE() << describe(made.error());
    return {};
  }
  std::vector<std::string> out;
  const std::vector<ByteRange> ranges = made->split(text).value();
  for (const ByteRange& range : ranges) {
    out.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return out;
}

TEST(PreTokenizer, ByteLevelHasTheWordsOfGpt2) {
  EXPECT_THAT(words(byte_level(true), "it's  2 x\n"),
              ElementsAre("it", "'s", " ", " 2", " x", "\n"));
  EXPECT_THAT(words(byte_level(false), "it's 2"), ElementsAre("it's 2"));
}

TEST(PreTokenizer, StagesCutThePiecesOfTheStageBefore) {
  const Json stages = sequence({split({{"Regex", "\\p{N}{1,3}"}}), split({{"Regex", "[a-c]+"}})});
  EXPECT_THAT(words(stages, "xab1234c"), ElementsAre("x", "ab", "123", "4", "c"));
  // No stage looks beyond its piece: the spaces before the digit end a piece.
  const Json ahead = sequence({split({{"Regex", "\\d"}}), split({{"Regex", "\\s+(?!\\S)|\\s+"}})});
  EXPECT_THAT(words(ahead, "  1"), ElementsAre("  ", "1"));
}

TEST(PreTokenizer, LiteralPatternsAreNoRegex) {
  EXPECT_THAT(words(sequence({split({{"String", "a.b"}})}), "axba.b"), ElementsAre("axb", "a.b"));
}

TEST(PreTokenizer, DigitsAloneOrTogether) {
  const Json each = sequence({{{"type", "Digits"}, {"individual_digits", true}}});
  EXPECT_THAT(words(each, "a12"), ElementsAre("a", "1", "2"));
  const Json all = sequence({{{"type", "Digits"}, {"individual_digits", false}}});
  EXPECT_THAT(words(all, "a12b"), ElementsAre("a", "12", "b"));
}

// Where PCRE2 and Oniguruma differ: U+180E is no white space to the latter.
TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(words(sequence({split({{"Regex", "\\s+"}})}),
                    "a\xE1\xA0\x8E\xC2\xA0\xC2\x85"
                    "b"),
              ElementsAre("a\xE1\xA0\x8E", "\xC2\xA0\xC2\x85", "b"));
  EXPECT_EQ(pcre2_pattern("[^\\s\\]x]\\S", "k").value(),
            "[^\\t-\\r\\x{85}\\p{Z}\\]x][^\\t-\\r\\x{85}\\p{Z}]");
  EXPECT_EQ(pcre2_pattern("[[:alpha:]]&&[]a]", "k").value(), "[[:alpha:]]&&[\\]a]");
}

}  // namespace
}  // namespace copse
