#pragma once
// Runs a syntax tree. One object renders once.
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_template/budget.h"
#include "model/chat_template/builtins.h"
#include "model/chat_template/syntax_tree.h"

namespace copse::chat {

class Interpreter {
 public:
  using Scope = std::map<std::string, Value, std::less<>>;

  explicit Interpreter(Scope globals);

  // The rendered text; throws Failure.
  Text render(const Body& body);

 private:
  // What a body ended with.
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };
  struct Loop {
    std::size_t index;
    const std::vector<Value>& items;
    std::size_t scope;  // the loop's place among the scopes
  };
  class Deeper;

  // Statements, in interpreter.cpp.
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_condition(const Statement& statement);
  Flow run_loop(const Statement& statement);
  void run_assign(const Statement& statement);
  void bind(const std::vector<std::string>& targets, const Value& value, int line);
  void print(const Value& value, int line);
  Text capture(const Body& body);

  // Expressions, in evaluate.cpp.
  Value evaluate(const Expression& e);
  Value evaluate_name(const Expression& e);
  Value evaluate_list(const Expression& e);
  Value evaluate_dict(const Expression& e);
  Value evaluate_unary(const Expression& e);
  Value evaluate_binary(const Expression& e);
  Value evaluate_compare(const Expression& e);
  Value evaluate_slice(const Expression& e);
  Value evaluate_call(const Expression& e);
  Arguments evaluate_arguments(const Expression& e);
  Value call(const Value& callee, const Arguments& arguments, const Expression& e);
  Value call_macro(const Statement& macro, const Arguments& arguments, int line);
  Value call_function(Function function, const Arguments& arguments, int line);
  Value make_range(const Arguments& arguments, int line);
  Value loop_value(int line);
  const Value* look_up(std::string_view name) const;

  CallSite site(int line) { return {budget_, line}; }

  Budget budget_;
  std::deque<Scope> scopes_;      // globals, the template's own, then loops and macros
  std::size_t visible_from_ = 1;  // a macro sees the first two scopes and those from here on
  std::vector<Loop> loops_;
  std::deque<Namespace> namespaces_;
  Text output_;
  int depth_ = 0;
};

}  // namespace copse::chat
