#pragma once
// A template's source as tokens, with the white space rules that Hugging Face sets: trim_blocks,
// lstrip_blocks, and one newline at the very end dropped.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace copse::chat {

enum class TokenKind : std::uint8_t {
  data,         // text between tags
  block_begin,  // {%
  block_end,
  output_begin,  // {{
  output_end,
  name,
  string,   // text: the value, escapes resolved
  integer,  // text: the digits
  real,
  symbol,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

// Throws Failure. The last token is `end`.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace copse::chat
