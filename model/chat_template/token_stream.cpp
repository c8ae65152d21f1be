#include "model/chat_template/failure.h"
#include "model/chat_template/parser.h"

namespace copse::chat {

Token TokenStream::next() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_symbol(std::string_view text) {
  if (!is_symbol(text)) return false;
  next();
  return true;
}

bool TokenStream::skip_word(std::string_view text) {
  if (!is_word(text)) return false;
  next();
  return true;
}

void TokenStream::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) fail_unexpected("'" + std::string(text) + "'");
}

void TokenStream::expect_word(std::string_view text) {
  if (!skip_word(text)) fail_unexpected("'" + std::string(text) + "'");
}

void TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) fail_unexpected(what);
  next();
}

std::string TokenStream::expect_name() {
  if (!is(TokenKind::name)) fail_unexpected("a name");
  return next().text;
}

void TokenStream::fail_unexpected(std::string_view wanted) const {
  std::string found = "'" + peek().text.substr(0, 40) + "'";
  if (is(TokenKind::end)) found = "the end of the template";
  if (is(TokenKind::block_end) || is(TokenKind::output_end)) found = "the end of the tag";
  fail_template(ErrorCode::malformed, line(), std::string(wanted) + " expected, not " + found);
}

}  // namespace copse::chat
