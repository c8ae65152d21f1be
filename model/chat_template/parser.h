#pragma once
// From tokens to the syntax tree. The grammar is Jinja's; what is missing is named by the error.
#include <algorithm>
#include <string_view>
#include <vector>

#include "model/chat_template/lexer.h"
#include "model/chat_template/syntax_tree.h"

namespace copse::chat {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek() const { return tokens_[at_]; }
  const Token& peek_behind() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next();
  int line() const { return peek().line; }
  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_symbol(std::string_view text) const { return is(TokenKind::symbol) && at_text(text); }
  bool is_word(std::string_view text) const { return is(TokenKind::name) && at_text(text); }
  bool skip_symbol(std::string_view text);
  bool skip_word(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect_word(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void fail_unexpected(std::string_view wanted) const;

 private:
  bool at_text(std::string_view text) const { return peek().text == text; }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr parse();  // with "a if b else c"
  ExpressionPtr parse_without_condition();
  ExpressionPtr parse_list();  // "a, b" is a list, as a bare tuple is

 private:
  class Nesting;
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_binary(int level);
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_literal_or_name();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_brackets();
  ExpressionPtr parse_braces();
  ExpressionPtr parse_postfix(ExpressionPtr base);
  ExpressionPtr parse_subscript(ExpressionPtr base);
  ExpressionPtr parse_filters(ExpressionPtr base);
  ExpressionPtr parse_filter(ExpressionPtr base);
  ExpressionPtr parse_test(ExpressionPtr base);
  void parse_arguments(Expression& call);

  TokenStream& tokens_;
  int depth_ = 0;
};

// Throws Failure: malformed, or unsupported for a construct that is not known here.
Body parse_template(std::string_view source);

}  // namespace copse::chat
