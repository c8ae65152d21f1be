#include "model/chat_template/parser.h"

#include <array>

#include "base/limits.h"
#include "model/chat_template/failure.h"

namespace copse::chat {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source) : tokens_(tokenize_template(source)) {}

  Body run() {
    Body body = parse_body({});
    if (!tokens_.is(TokenKind::end)) {
      fail_template(ErrorCode::malformed, tokens_.line(),
                    "unexpected tag '" + tokens_.peek().text.substr(0, 40) + "'");
    }
    return body;
  }

 private:
  StatementPtr make(StatementKind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = tokens_.line();
    return made;
  }

  void end_tag() { tokens_.expect(TokenKind::block_end, "the end of the tag"); }

  // Up to a tag that begins with one of `ends`, whose name is then the next token; without ends,
  // up to the end of the template.
  Body parse_body(std::vector<std::string_view> ends) {
    if (++depth_ > limits::template_depth) {
      fail_template(ErrorCode::resource_exhausted, tokens_.line(), "tags nest too deeply");
    }
    Body body;
    while (!tokens_.is(TokenKind::end)) {
      if (tokens_.is(TokenKind::data)) {
        StatementPtr data = make(StatementKind::data);
        data->text = tokens_.next().text;
        body.push_back(std::move(data));
      } else if (tokens_.is(TokenKind::output_begin)) {
        StatementPtr output = make(StatementKind::output);
        tokens_.next();
        output->value = expressions_.parse_list();
        tokens_.expect(TokenKind::output_end, "the end of the tag");
        body.push_back(std::move(output));
      } else {
        tokens_.expect(TokenKind::block_begin, "a tag");
        if (!tokens_.is(TokenKind::name)) tokens_.fail_unexpected("the name of a tag");
        const std::string& name = tokens_.peek().text;
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          --depth_;
          return body;
        }
        body.push_back(parse_tag());
      }
    }
    if (!ends.empty()) tokens_.fail_unexpected("'" + std::string(ends.back()) + "'");
    --depth_;
    return body;
  }

  StatementPtr parse_tag() {
    const int line = tokens_.line();
    const std::string name = tokens_.next().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "generation") return parse_generation();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_template(ErrorCode::malformed, line, "'" + name + "' outside a loop");
      StatementPtr jump =
          make(name == "break" ? StatementKind::break_loop : StatementKind::continue_loop);
      end_tag();
      return jump;
    }
    constexpr std::array<std::string_view, 5> kInner = {"else", "elif", "endif", "endfor",
                                                        "endset"};
    if (std::find(kInner.begin(), kInner.end(), name) != kInner.end()) {
      fail_template(ErrorCode::malformed, line, "unexpected tag '" + name + "'");
    }
    fail_template(ErrorCode::unsupported, line, "unknown tag '" + name.substr(0, 40) + "'");
  }

  StatementPtr parse_if() {
    StatementPtr node = make(StatementKind::condition);
    for (bool more = true; more;) {
      Branch branch;
      branch.condition = expressions_.parse_list();
      end_tag();
      branch.body = parse_body({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
      more = tokens_.skip_word("elif");
    }
    if (tokens_.skip_word("else")) {
      end_tag();
      node->branches.push_back({nullptr, parse_body({"endif"})});
    }
    tokens_.expect_word("endif");
    end_tag();
    return node;
  }

  std::vector<std::string> parse_targets() {
    std::vector<std::string> targets;
    const bool parentheses = tokens_.skip_symbol("(");
    do {
      targets.push_back(tokens_.expect_name());
    } while (tokens_.skip_symbol(","));
    if (parentheses) tokens_.expect_symbol(")");
    return targets;
  }

  StatementPtr parse_for() {
    StatementPtr node = make(StatementKind::loop);
    node->targets = parse_targets();
    tokens_.expect_word("in");
    node->value = expressions_.parse_without_condition();
    if (tokens_.skip_word("if")) node->filter = expressions_.parse();
    if (tokens_.is_word("recursive")) {
      fail_template(ErrorCode::unsupported, tokens_.line(), "a recursive loop");
    }
    end_tag();
    ++loops_;
    node->body = parse_body({"else", "endfor"});
    --loops_;
    if (tokens_.skip_word("else")) {
      end_tag();
      node->otherwise = parse_body({"endfor"});
    }
    tokens_.expect_word("endfor");
    end_tag();
    return node;
  }

  StatementPtr parse_set() {
    StatementPtr node = make(StatementKind::assign);
    node->targets = parse_targets();
    if (node->targets.size() == 1 && tokens_.skip_symbol(".")) {
      node->text = tokens_.expect_name();
    }
    if (tokens_.skip_symbol("=")) {
      node->value = expressions_.parse_list();
      end_tag();
      return node;
    }
    if (tokens_.is_symbol("|")) {
      fail_template(ErrorCode::unsupported, tokens_.line(), "a filter on a set block");
    }
    if (node->targets.size() != 1) tokens_.fail_unexpected("'='");
    node->kind = StatementKind::capture;
    end_tag();
    const int loops = std::exchange(loops_, 0);  // no break out of a text that is being captured
    node->body = parse_body({"endset"});
    loops_ = loops;
    tokens_.expect_word("endset");
    end_tag();
    return node;
  }

  StatementPtr parse_macro() {
    StatementPtr node = make(StatementKind::macro);
    node->text = tokens_.expect_name();
    tokens_.expect_symbol("(");
    while (!tokens_.is_symbol(")")) {
      node->targets.push_back(tokens_.expect_name());
      node->defaults.push_back(tokens_.skip_symbol("=") ? expressions_.parse() : nullptr);
      if (!tokens_.skip_symbol(",")) break;
    }
    tokens_.expect_symbol(")");
    end_tag();
    const int loops = std::exchange(loops_, 0);  // a loop around a macro is not the macro's
    node->body = parse_body({"endmacro"});
    loops_ = loops;
    tokens_.expect_word("endmacro");
    if (tokens_.is(TokenKind::name)) tokens_.next();
    end_tag();
    return node;
  }

  // Marks for training what the assistant said; it prints its body.
  StatementPtr parse_generation() {
    StatementPtr node = make(StatementKind::group);
    end_tag();
    node->body = parse_body({"endgeneration"});
    tokens_.expect_word("endgeneration");
    end_tag();
    return node;
  }

  TokenStream tokens_;
  ExpressionParser expressions_{tokens_};
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  return TemplateParser(source).run();
}

}  // namespace copse::chat
