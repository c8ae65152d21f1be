#include "model/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "model/tokenizer/test_tokenizers.h"
#include "model/tokenizer/tokenizer.h"

namespace copse {
namespace {

// All deltas of the sequence joined; each of them must be valid by itself.
std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) {
    const std::string delta = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(delta));
    text += delta;
  }
  return text + detokenizer.finish();
}

TEST(Detokenizer, HoldsACharacterBackUntilItIsWhole) {
  const auto tokenizer = Tokenizer::parse(small_tokenizer_json().dump(), "").value();
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(detokenizer.push(-7), "");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, SkipsSpecialTokensWithoutBreakingACharacter) {
  const auto tokenizer = Tokenizer::parse(small_tokenizer_json().dump(), "").value();
  EXPECT_EQ(streamed(*tokenizer, {0xC3, 300, 0xA9}, true), "\xC3\xA9");
  EXPECT_EQ(streamed(*tokenizer, {0xC3, 300, 0xA9}, false), "\xEF\xBF\xBD<s>\xEF\xBF\xBD");
}

TEST(Detokenizer, DeltasOfRandomIdsAreTheDecodedText) {
  const auto sapling = Tokenizer::load("models/sapling").value();
  const auto small = Tokenizer::parse(small_tokenizer_json().dump(), "").value();
  std::mt19937 random(17);
  for (int round = 0; round < 3000; ++round) {
    const Tokenizer& tokenizer = round % 2 == 0 ? *sapling : *small;
    // The low ids are single bytes, where characters get cut; the ends are outside.
    std::uniform_int_distribution<TokenId> id(-2, round % 3 == 0 ? 5000 : 270);
    std::vector<TokenId> ids(random() % 40);
    for (TokenId& one : ids) one = id(random);
    const bool skip = random() % 2 == 0;
    ASSERT_EQ(streamed(tokenizer, ids, skip), tokenizer.decode(ids, {.skip_special = skip}));
  }
}

}  // namespace
}  // namespace copse
