#include "model/chat_template/string_literal.h"

#include <cstdint>

namespace copse::chat {
namespace {

void append_utf8(std::string& out, std::uint32_t point) {
  if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) point = 0xFFFD;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | (point >> 6));
    tail(0);
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | (point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Reads between `least` and `most` digits of the base; false if there are fewer.
bool read_digits(std::string_view text, int base, std::size_t least, std::size_t most,
                 std::size_t& used, std::uint32_t& point) {
  point = 0;
  for (used = 0; used < most && used < text.size() && digit_value(text[used]) < base; ++used) {
    point = point * static_cast<std::uint32_t>(base) +
            static_cast<std::uint32_t>(digit_value(text[used]));
  }
  return used >= least;
}

}  // namespace

std::string unescape_literal(std::string_view literal) {
  constexpr std::string_view kLetters = "ntr\\'\"abfv\n";
  constexpr std::string_view kMeanings = "\n\t\r\\'\"\a\b\f\v";
  std::string out;
  while (!literal.empty()) {
    const char letter = literal[0] == '\\' && literal.size() > 1 ? literal[1] : '\0';
    if (letter == '\0') {
      out += literal[0];
      literal.remove_prefix(1);
      continue;
    }
    std::size_t used = 0;
    std::uint32_t point = 0;
    const std::string_view behind = literal.substr(2);
    const std::size_t known = kLetters.find(letter);
    if (known != std::string_view::npos) {
      if (known < kMeanings.size()) out += kMeanings[known];  // a newline after \ is dropped
      literal.remove_prefix(2);
    } else if ((letter == 'x' && read_digits(behind, 16, 2, 2, used, point)) ||
               (letter == 'u' && read_digits(behind, 16, 4, 4, used, point)) ||
               (letter == 'U' && read_digits(behind, 16, 8, 8, used, point))) {
      append_utf8(out, point);
      literal.remove_prefix(2 + used);
    } else if (read_digits(literal.substr(1), 8, 1, 3, used, point)) {
      append_utf8(out, point);
      literal.remove_prefix(1 + used);
    } else {
      out += '\\';
      literal.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace copse::chat
