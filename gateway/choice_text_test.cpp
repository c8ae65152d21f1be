#include "gateway/choice_text.h"

#include <gtest/gtest.h>

#include "gateway/fakes_for_test.h"

namespace copse {
namespace {

ChoiceText choice(std::vector<std::string> stops, std::vector<TokenId> ends = {ByteModel::kEnd}) {
  return ChoiceText(ByteModel().decoder(), std::move(stops), std::move(ends));
}

std::vector<TokenId> ids(const std::string& text) {
  std::vector<TokenId> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

TEST(ChoiceText, CountsTheTokenThatCompletesAStopStringAndNoneBehindIt) {
  ChoiceText text = choice({"cd"});
  EXPECT_EQ(text.push(ids("abcdefg")), "ab");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.delivered(), 4u);
  EXPECT_EQ(text.push(ids("hij")), "");
  EXPECT_EQ(text.delivered(), 4u);
  EXPECT_EQ(text.finish(false), "");
}

TEST(ChoiceText, AnEndTokenIsCountedButNotShown) {
  ChoiceText text = choice({});
  std::vector<TokenId> tokens = ids("ab");
  tokens.push_back(ByteModel::kEnd);
  EXPECT_EQ(text.push(tokens), "ab");
  EXPECT_EQ(text.finish(true), "");
  EXPECT_EQ(text.delivered(), 3u);
}

TEST(ChoiceText, AnEndTokenThatDidNotEndIsText) {
  ChoiceText text = choice({});
  EXPECT_EQ(text.push(std::vector<TokenId>{'a', ByteModel::kEnd, 'b'}), "a<end>b");
  EXPECT_EQ(text.push(std::vector<TokenId>{ByteModel::kEnd}), "");
  EXPECT_EQ(text.finish(false), "<end>");
}

TEST(ChoiceText, HoldsBackHalfACharacterAndMarksOneThatNeverCame) {
  ChoiceText text = choice({});
  EXPECT_EQ(text.push(std::vector<TokenId>{0xC3}), "");
  EXPECT_EQ(text.push(std::vector<TokenId>{0xA9}), "\xC3\xA9");
  EXPECT_EQ(text.push(std::vector<TokenId>{0xC3}), "");
  EXPECT_EQ(text.finish(false), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace copse
