#include <algorithm>
#include <charconv>

#include "base/limits.h"
#include "model/chat_template/builtins.h"
#include "model/chat_template/failure.h"
#include "model/chat_template/parser.h"

namespace copse::chat {
namespace {

constexpr std::size_t kArgumentsMax = 64;
constexpr int kHeightMax = 2 * limits::template_depth;  // a chain of + is as high as it is long

ExpressionPtr make(ExpressionKind kind, int line, std::string name = "") {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->name = std::move(name);
  return made;
}

void add(Expression& parent, ExpressionPtr operand) {
  if (operand) {
    parent.height = std::max(parent.height, operand->height + 1);
    if (parent.height > kHeightMax) {
      fail_template(ErrorCode::resource_exhausted, parent.line, "an expression nests too deeply");
    }
  }
  parent.operands.push_back(std::move(operand));
}

ExpressionPtr literal(int line, Value value) {
  ExpressionPtr made = make(ExpressionKind::literal, line);
  made->value = std::move(value);
  return made;
}

Value number_of(const Token& token) {
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::integer) {
    std::int64_t value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec == std::errc() && read.ptr == end) return value;
  } else {
    double value = 0;
    const auto read = std::from_chars(begin, end, value);
    if (read.ec == std::errc() && read.ptr == end) return value;
  }
  fail_template(ErrorCode::unsupported, token.line, "the number " + token.text.substr(0, 40));
}

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : depth_(parser.depth_) {
    if (++depth_ > limits::template_depth) {
      fail_template(ErrorCode::resource_exhausted, parser.tokens_.line(),
                    "an expression nests too deeply");
    }
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

ExpressionPtr ExpressionParser::parse() {
  const Nesting nesting(*this);
  ExpressionPtr then = parse_or();
  while (tokens_.is_word("if")) {
    ExpressionPtr node = make(ExpressionKind::conditional, tokens_.next().line);
    add(*node, std::move(then));
    add(*node, parse_or());
    add(*node, tokens_.skip_word("else") ? parse() : nullptr);
    then = std::move(node);
  }
  return then;
}

ExpressionPtr ExpressionParser::parse_without_condition() {
  const Nesting nesting(*this);
  return parse_or();
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr first = parse();
  if (!tokens_.is_symbol(",")) return first;
  ExpressionPtr list = make(ExpressionKind::list, tokens_.line());
  add(*list, std::move(first));
  while (tokens_.skip_symbol(",")) {
    if (tokens_.is(TokenKind::block_end) || tokens_.is(TokenKind::output_end)) break;
    add(*list, parse());
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (tokens_.is_word("or")) {
    ExpressionPtr node = make(ExpressionKind::binary, tokens_.next().line, "or");
    add(*node, std::move(left));
    add(*node, parse_and());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (tokens_.is_word("and")) {
    ExpressionPtr node = make(ExpressionKind::binary, tokens_.next().line, "and");
    add(*node, std::move(left));
    add(*node, parse_not());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.is_word("not")) return parse_compare();
  const Nesting nesting(*this);
  ExpressionPtr node = make(ExpressionKind::unary, tokens_.next().line, "not");
  add(*node, parse_not());
  return node;
}

ExpressionPtr ExpressionParser::parse_compare() {
  constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr node;
  ExpressionPtr left = parse_binary(0);
  for (;;) {
    std::string name;
    if (tokens_.is(TokenKind::symbol) && std::find(std::begin(kOperators), std::end(kOperators),
                                                   tokens_.peek().text) != std::end(kOperators)) {
      name = tokens_.next().text;
    } else if (tokens_.skip_word("in")) {
      name = "in";
    } else if (tokens_.is_word("not") && tokens_.peek_behind().kind == TokenKind::name &&
               tokens_.peek_behind().text == "in") {
      tokens_.next();
      tokens_.next();
      name = "not in";
    } else {
      return node ? std::move(node) : std::move(left);
    }
    if (!node) {
      node = make(ExpressionKind::compare, tokens_.line());
      add(*node, std::move(left));
    }
    node->operators.push_back(std::move(name));
    add(*node, parse_binary(0));
  }
}

// From the loosest to the tightest: + and -, then ~, then * and its like, then **.
ExpressionPtr ExpressionParser::parse_binary(int level) {
  const std::vector<std::string_view> kLevels[] = {
      {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
  if (level == 4) return parse_unary(true);
  ExpressionPtr left = parse_binary(level + 1);
  const auto& names = kLevels[level];
  while (tokens_.is(TokenKind::symbol) &&
         std::find(names.begin(), names.end(), tokens_.peek().text) != names.end()) {
    const Token symbol = tokens_.next();
    ExpressionPtr node = make(ExpressionKind::binary, symbol.line, symbol.text);
    add(*node, std::move(left));
    add(*node, parse_binary(level + 1));
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr node;
  if (tokens_.is_symbol("-") || tokens_.is_symbol("+")) {
    const Token symbol = tokens_.next();
    node = make(ExpressionKind::unary, symbol.line, symbol.text);
    add(*node, parse_unary(false));
  } else {
    node = parse_postfix(parse_primary());
  }
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  if (tokens_.is_symbol("(")) return parse_parentheses();
  if (tokens_.is_symbol("[")) return parse_brackets();
  if (tokens_.is_symbol("{")) return parse_braces();
  return parse_literal_or_name();
}

ExpressionPtr ExpressionParser::parse_literal_or_name() {
  const Token token = tokens_.peek();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) {
    tokens_.next();
    return literal(token.line, number_of(token));
  }
  if (token.kind == TokenKind::string) {
    std::string text;
    while (tokens_.is(TokenKind::string)) text += tokens_.next().text;  // adjacent ones join
    return literal(token.line, text_value(text));
  }
  if (token.kind != TokenKind::name) tokens_.fail_unexpected("an expression");
  tokens_.next();
  if (token.text == "true" || token.text == "True") return literal(token.line, true);
  if (token.text == "false" || token.text == "False") return literal(token.line, false);
  if (token.text == "none" || token.text == "None") return literal(token.line, None{});
  return make(ExpressionKind::name, token.line, token.text);
}

// (a) is a; (), (a,) and (a, b) are tuples, which are lists here.
ExpressionPtr ExpressionParser::parse_parentheses() {
  ExpressionPtr list = make(ExpressionKind::list, tokens_.next().line);
  bool tuple = tokens_.is_symbol(")");
  while (!tokens_.is_symbol(")")) {
    add(*list, parse());
    if (!tokens_.skip_symbol(",")) break;
    tuple = true;
  }
  tokens_.expect_symbol(")");
  return tuple ? std::move(list) : std::move(list->operands[0]);
}

ExpressionPtr ExpressionParser::parse_brackets() {
  ExpressionPtr list = make(ExpressionKind::list, tokens_.next().line);
  while (!tokens_.is_symbol("]")) {
    add(*list, parse());
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol("]");
  return list;
}

ExpressionPtr ExpressionParser::parse_braces() {
  ExpressionPtr dict = make(ExpressionKind::dict, tokens_.next().line);
  while (!tokens_.is_symbol("}")) {
    add(*dict, parse());
    tokens_.expect_symbol(":");
    add(*dict, parse());
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol("}");
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr base) {
  for (;;) {
    if (tokens_.skip_symbol(".")) {
      ExpressionPtr node;
      if (tokens_.is(TokenKind::integer)) {
        const Token token = tokens_.next();
        node = make(ExpressionKind::item, token.line);
        add(*node, std::move(base));
        add(*node, literal(token.line, number_of(token)));
      } else {
        node = make(ExpressionKind::attribute, tokens_.line(), tokens_.expect_name());
        add(*node, std::move(base));
      }
      base = std::move(node);
    } else if (tokens_.is_symbol("[")) {
      base = parse_subscript(std::move(base));
    } else if (tokens_.is_symbol("(")) {
      ExpressionPtr node = make(ExpressionKind::call, tokens_.line());
      add(*node, std::move(base));
      parse_arguments(*node);
      base = std::move(node);
    } else {
      return base;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr base) {
  ExpressionPtr node = make(ExpressionKind::item, tokens_.next().line);
  add(*node, std::move(base));
  ExpressionPtr parts[3];
  int colons = 0;
  for (;;) {
    if (!tokens_.is_symbol(":") && !tokens_.is_symbol("]")) parts[colons] = parse();
    if (colons == 2 || !tokens_.skip_symbol(":")) break;
    ++colons;
  }
  tokens_.expect_symbol("]");
  if (colons > 0) {
    node->kind = ExpressionKind::slice;
    for (ExpressionPtr& part : parts) add(*node, std::move(part));
  } else {
    if (!parts[0]) tokens_.fail_unexpected("an index");
    add(*node, std::move(parts[0]));
  }
  return node;
}

void ExpressionParser::parse_arguments(Expression& call) {
  tokens_.expect_symbol("(");
  while (!tokens_.is_symbol(")")) {
    if (tokens_.is_symbol("*") || tokens_.is_symbol("**")) {
      fail_template(ErrorCode::unsupported, tokens_.line(), "unpacked arguments");
    }
    const Token behind = tokens_.peek_behind();
    if (tokens_.is(TokenKind::name) && behind.kind == TokenKind::symbol && behind.text == "=") {
      std::string name = tokens_.next().text;
      tokens_.next();
      ExpressionPtr value = parse();
      call.height = std::max(call.height, value->height + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      add(call, parse());
    }
    if (call.operands.size() + call.named.size() > kArgumentsMax) {
      fail_template(ErrorCode::resource_exhausted, call.line, "too many arguments");
    }
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol(")");
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr base) {
  for (;;) {
    if (tokens_.skip_symbol("|")) {
      base = parse_filter(std::move(base));
    } else if (tokens_.skip_word("is")) {
      base = parse_test(std::move(base));
    } else if (tokens_.is_symbol("(")) {
      base = parse_postfix(std::move(base));
    } else {
      return base;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr base) {
  const int line = tokens_.line();
  ExpressionPtr node = make(ExpressionKind::filter, line, tokens_.expect_name());
  if (find_filter(node->name) == nullptr) {
    fail_template(ErrorCode::unsupported, line, "unknown filter '" + node->name + "'");
  }
  add(*node, std::move(base));
  if (tokens_.is_symbol("(")) parse_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr base) {
  const int line = tokens_.line();
  const bool negated = tokens_.skip_word("not");
  ExpressionPtr node = make(ExpressionKind::test, line, tokens_.expect_name());
  if (find_test(node->name) == nullptr) {
    fail_template(ErrorCode::unsupported, line, "unknown test '" + node->name + "'");
  }
  add(*node, std::move(base));
  const bool word = tokens_.is(TokenKind::name);
  const bool ends = tokens_.is_word("else") || tokens_.is_word("or") || tokens_.is_word("and") ||
                    tokens_.is_word("is") || tokens_.is_word("if");
  if (tokens_.is_symbol("(")) {
    parse_arguments(*node);
  } else if ((word && !ends) || tokens_.is(TokenKind::string) || tokens_.is(TokenKind::integer) ||
             tokens_.is(TokenKind::real) || tokens_.is_symbol("[") || tokens_.is_symbol("{")) {
    add(*node, parse_postfix(parse_primary()));
  }
  if (!negated) return node;
  ExpressionPtr negation = make(ExpressionKind::unary, line, "not");
  add(*negation, std::move(node));
  return negation;
}

}  // namespace copse::chat
