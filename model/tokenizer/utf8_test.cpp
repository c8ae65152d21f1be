#include "model/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace copse {
namespace {

const std::string kBad(kReplacementCharacter);

std::string repaired(std::string_view bytes) {
  Utf8Repair repair;
  std::string text = repair.push(bytes);
  return text + repair.finish();
}

struct RepairCase {
  std::string bytes;
  std::string text;
};

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  const RepairCase table[] = {
      {"plain", "plain"},
      {"\xC0\x80", kBad + kBad},                        // overlong
      {"\xE0\x80\x80", kBad + kBad + kBad},             // overlong
      {"\xED\xA0\x80", kBad + kBad + kBad},             // surrogate
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},  // beyond U+10FFFF
      {"\xF5", kBad},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF", kBad + kBad + kBad + kBad},  // Unicode 15, table 3-8
      {"\xF0\x9F\x98", kBad},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
      {"\x80\xBF", kBad + kBad},
      {"\xC3\xC3\xA9", kBad + "\xC3\xA9"},
  };
  for (const RepairCase& one : table) {
    EXPECT_EQ(repaired(one.bytes), one.text);
    EXPECT_EQ(is_valid_utf8(one.bytes), one.bytes == one.text);
  }
}

TEST(Utf8, RepairDoesNotDependOnThePortions) {
  std::mt19937 random(5);
  const unsigned char pool[] = {0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE2,
                                0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x90};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& byte : bytes) byte = static_cast<char>(pool[random() % std::size(pool)]);
    Utf8Repair repair;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t portion = 1 + random() % 3;
      text += repair.push(std::string_view(bytes).substr(at, portion));
      at += portion;
    }
    text += repair.finish();
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(text, repaired(bytes));
  }
}

}  // namespace
}  // namespace copse
