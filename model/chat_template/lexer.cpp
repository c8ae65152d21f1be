#include "model/chat_template/lexer.h"

#include <algorithm>
#include <array>

#include "model/chat_template/failure.h"
#include "model/chat_template/string_literal.h"
#include "model/chat_template/text.h"

namespace copse::chat {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string normalized(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) next_data();
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_template(ErrorCode::malformed, line_, what);
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  std::string_view take(std::size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    return taken;
  }

  // Text up to the next tag, and the tag.
  void next_data() {
    std::size_t tag = 0;
    while ((tag = rest_.find('{', tag)) != std::string_view::npos) {
      const char kind = tag + 1 < rest_.size() ? rest_[tag + 1] : '\0';
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      push(TokenKind::data, std::string(rest_));
      take(rest_.size());
      return;
    }
    const char kind = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    std::string_view data = rest_.substr(0, tag);
    if (sign == '-') {
      data.remove_suffix(trailing_space(data));
    } else if (sign != '+' && kind != '{') {
      const std::size_t line_start = data.rfind('\n') + 1;  // npos + 1 is 0
      const std::string_view indent = data.substr(line_start);
      if ((line_start > 0 || at_line_start_) && leading_space(indent) == indent.size()) {
        data = data.substr(0, line_start);
      }
    }
    if (!data.empty()) push(TokenKind::data, std::string(data));
    take(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') return comment();
    push(kind == '{' ? TokenKind::output_begin : TokenKind::block_begin, "");
    inside(kind == '{' ? "}}" : "%}");
    push(kind == '{' ? TokenKind::output_end : TokenKind::block_end, "");
  }

  void comment() {
    const std::size_t end = rest_.find("#}");
    if (end == std::string_view::npos) fail("a comment without an end");
    const char sign = end > 0 ? rest_[end - 1] : '\0';
    take(end);
    close("#}", sign);
  }

  // Behind the tag: "-" drops all white space, otherwise a block drops one newline.
  void close(std::string_view tag, char sign) {
    std::size_t bytes = tag.size();
    const std::string_view behind = rest_.substr(bytes);
    if (sign == '-') {
      bytes += leading_space(behind);
    } else if (sign != '+' && tag != "}}" && behind.starts_with('\n')) {
      ++bytes;
    }
    at_line_start_ = take(bytes).back() == '\n';
  }

  void inside(std::string_view end_tag) {
    std::string open;  // brackets: the end tag counts only outside of them
    for (;;) {
      while (!rest_.empty() && is_blank(rest_[0])) take(1);
      if (rest_.empty()) fail("a tag without an end");
      if (open.empty() && rest_.starts_with(end_tag)) return close(end_tag, '\0');
      const bool signed_end = (rest_[0] == '-' || (rest_[0] == '+' && end_tag == "%}")) &&
                              rest_.substr(1).starts_with(end_tag);
      if (open.empty() && signed_end) return close(end_tag, take(1)[0]);
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = rest_[0];
    if (is_name_start(c)) {
      std::size_t size = 1;
      while (size < rest_.size() && (is_name_start(rest_[size]) || is_digit(rest_[size]))) ++size;
      return push(TokenKind::name, std::string(take(size)));
    }
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    const std::string_view pair = rest_.substr(0, 2);
    if (std::find(kPairs.begin(), kPairs.end(), pair) != kPairs.end()) {
      return push(TokenKind::symbol, std::string(take(2)));
    }
    if (std::string_view("+-*/%~|=<>.,:()[]{}").find(c) == std::string_view::npos) {
      fail("unexpected '" + std::string(1, c) + "'");
    }
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      constexpr std::string_view kOpening = "([{";
      const char wanted = kOpening[std::string_view(")]}").find(c)];
      if (open.empty() || open.back() != wanted) fail("unexpected '" + std::string(1, c) + "'");
      open.pop_back();
    }
    push(TokenKind::symbol, std::string(take(1)));
  }

  void number() {
    const auto digits = [&](std::size_t at) {
      while (at < rest_.size() && (is_digit(rest_[at]) || rest_[at] == '_')) ++at;
      return at;
    };
    std::size_t size = digits(0);
    TokenKind kind = TokenKind::integer;
    if (size + 1 < rest_.size() && rest_[size] == '.' && is_digit(rest_[size + 1])) {
      size = digits(size + 1);
      kind = TokenKind::real;
    }
    if (size < rest_.size() && (rest_[size] == 'e' || rest_[size] == 'E')) {
      std::size_t at = size + 1;
      if (at < rest_.size() && (rest_[at] == '+' || rest_[at] == '-')) ++at;
      if (at < rest_.size() && is_digit(rest_[at])) {
        size = digits(at);
        kind = TokenKind::real;
      }
    }
    std::string text(take(size));
    std::erase(text, '_');
    push(kind, std::move(text));
  }

  void string(char quote) {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("a string without an end");
    std::string value = unescape_literal(rest_.substr(1, end - 1));
    push(TokenKind::string, std::move(value));
    take(end + 1);
  }

  std::string source_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace copse::chat
