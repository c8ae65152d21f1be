#include <algorithm>

#include "model/chat_template/interpreter.h"
#include "model/chat_template/interpreter_depth.h"
#include "model/chat_template/operators.h"

namespace copse::chat {

Value Interpreter::evaluate(const Expression& e) {
  const Deeper deeper(*this, e.line);
  budget_.spend(1, e.line);
  switch (e.kind) {
    case ExpressionKind::literal:
      return e.value;
    case ExpressionKind::name:
      return evaluate_name(e);
    case ExpressionKind::list:
      return evaluate_list(e);
    case ExpressionKind::dict:
      return evaluate_dict(e);
    case ExpressionKind::unary:
      return evaluate_unary(e);
    case ExpressionKind::binary:
      return evaluate_binary(e);
    case ExpressionKind::compare:
      return evaluate_compare(e);
    case ExpressionKind::conditional:
      if (is_true(evaluate(*e.operands[1]))) return evaluate(*e.operands[0]);
      return e.operands[2] ? evaluate(*e.operands[2]) : Value(Undefined{"else"});
    case ExpressionKind::attribute:
      return member_of(site(e.line), evaluate(*e.operands[0]), e.name);
    case ExpressionKind::item: {
      const Value base = evaluate(*e.operands[0]);
      return item_of(site(e.line), base, evaluate(*e.operands[1]));
    }
    case ExpressionKind::slice:
      return evaluate_slice(e);
    case ExpressionKind::call:
      return evaluate_call(e);
    case ExpressionKind::filter: {
      const Value input = evaluate(*e.operands[0]);
      return find_filter(e.name)(site(e.line), input, evaluate_arguments(e));
    }
    case ExpressionKind::test: {
      const Value input = evaluate(*e.operands[0]);
      return find_test(e.name)(site(e.line), input, evaluate_arguments(e));
    }
  }
  return Undefined{};
}

const Value* Interpreter::look_up(std::string_view name) const {
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    if (i >= 2 && i < visible_from_) continue;
    const auto found = scopes_[i].find(name);
    if (found != scopes_[i].end()) return &found->second;
  }
  return nullptr;
}

Value Interpreter::evaluate_name(const Expression& e) {
  if (const Value* value = look_up(e.name)) return *value;
  if (e.name == "loop") return loop_value(e.line);
  return Undefined{e.name};
}

// What is known of the innermost loop that this place can see.
Value Interpreter::loop_value(int line) {
  if (loops_.empty() || loops_.back().scope < visible_from_) return Undefined{"loop"};
  budget_.spend(20, line);
  const Loop& loop = loops_.back();
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = std::ssize(loop.items);
  const auto key = [](std::string_view name) { return Text(name, TextOrigin::from_template); };
  Dict dict;
  dict.set(key("index"), index + 1);
  dict.set(key("index0"), index);
  dict.set(key("revindex"), length - index);
  dict.set(key("revindex0"), length - index - 1);
  dict.set(key("first"), index == 0);
  dict.set(key("last"), index + 1 == length);
  dict.set(key("length"), static_cast<std::int64_t>(length));
  if (index > 0) dict.set(key("previtem"), loop.items[loop.index - 1]);
  if (index + 1 < length) dict.set(key("nextitem"), loop.items[loop.index + 1]);
  return std::make_shared<const Dict>(std::move(dict));
}

Value Interpreter::evaluate_list(const Expression& e) {
  std::vector<Value> items;
  for (const ExpressionPtr& operand : e.operands) items.push_back(evaluate(*operand));
  return list_value(std::move(items));
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict dict;
  for (std::size_t i = 0; i < e.operands.size(); i += 2) {
    const Value key = evaluate(*e.operands[i]);
    const Text* text = as_text(key);
    if (text == nullptr) {
      fail_template(ErrorCode::unsupported, e.line, "a mapping with a key that is no string");
    }
    budget_.spend_text(*text, e.line);
    dict.set(*text, evaluate(*e.operands[i + 1]));
  }
  return dict_value(std::move(dict));
}

Value Interpreter::evaluate_unary(const Expression& e) {
  const Value value = evaluate(*e.operands[0]);
  if (e.name == "not") return !is_true(value);
  return apply_sign(site(e.line), e.name, value);
}

Value Interpreter::evaluate_binary(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  if (e.name == "and") return is_true(left) ? evaluate(*e.operands[1]) : std::move(left);
  if (e.name == "or") return is_true(left) ? std::move(left) : evaluate(*e.operands[1]);
  return apply_binary(site(e.line), e.name, left, evaluate(*e.operands[1]));
}

Value Interpreter::evaluate_compare(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.operands[i + 1]);
    if (!is_true(compare_values(site(e.line), e.operators[i], left, right))) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_slice(const Expression& e) {
  const Value base = evaluate(*e.operands[0]);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    bounds[i] = e.operands[i + 1] ? evaluate(*e.operands[i + 1]) : Value(None{});
  }
  return slice_of(site(e.line), base, &bounds[0], &bounds[1], &bounds[2]);
}

Arguments Interpreter::evaluate_arguments(const Expression& e) {
  Arguments arguments;
  for (std::size_t i = 1; i < e.operands.size(); ++i) {
    arguments.positional.push_back(evaluate(*e.operands[i]));
  }
  for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& e) {
  const Expression& target = *e.operands[0];
  if (target.kind == ExpressionKind::attribute) {
    const Value object = evaluate(*target.operands[0]);
    const bool member = std::holds_alternative<Namespace*>(object) ||
                        (as_dict(object) != nullptr && !has_method(object, target.name) &&
                         as_dict(object)->find(target.name) != nullptr);
    if (!member) {
      return call_method(site(e.line), object, target.name, evaluate_arguments(e));
    }
    return call(member_of(site(e.line), object, target.name), evaluate_arguments(e), e);
  }
  const Value callee = evaluate(target);
  return call(callee, evaluate_arguments(e), e);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments, const Expression& e) {
  if (const auto* macro = std::get_if<const Statement*>(&callee)) {
    return call_macro(**macro, arguments, e.line);
  }
  if (const auto* function = std::get_if<Function>(&callee)) {
    return call_function(*function, arguments, e.line);
  }
  if (const auto* undefined = std::get_if<Undefined>(&callee)) {
    fail_template(
        ErrorCode::unsupported, e.line,
        "unknown function '" + (undefined->name ? undefined->name->substr(0, 64) : "") + "'");
  }
  fail_type(site(e.line), "a call of", callee);
}

Value Interpreter::call_macro(const Statement& macro, const Arguments& arguments, int line) {
  if (arguments.positional.size() > macro.targets.size()) {
    fail_template(ErrorCode::invalid_argument, line, "too many arguments of a macro");
  }
  for (const auto& [name, value] : arguments.named) {
    if (std::find(macro.targets.begin(), macro.targets.end(), name) == macro.targets.end()) {
      fail_template(ErrorCode::invalid_argument, line,
                    "unknown argument '" + name.substr(0, 64) + "' of a macro");
    }
  }
  const std::size_t outer = std::exchange(visible_from_, scopes_.size());
  scopes_.emplace_back();
  for (std::size_t i = 0; i < macro.targets.size(); ++i) {
    Value& value = scopes_.back()[macro.targets[i]];  // undefined at first
    if (const Value* given = arguments.find(i, macro.targets[i])) {
      value = *given;
    } else if (macro.defaults[i]) {
      value = evaluate(*macro.defaults[i]);
    }
  }
  Value text = text_value(capture(macro.body));
  scopes_.pop_back();
  visible_from_ = outer;
  return text;
}

Value Interpreter::call_function(Function function, const Arguments& arguments, int line) {
  if (function == Function::range) return make_range(arguments, line);
  if (function == Function::raise_exception) {
    const Value* message = arguments.find(0, "message");
    const Text text = message == nullptr ? Text() : to_text(*message, budget_, line);
    throw Failure{{ErrorCode::invalid_argument, "messages",
                   text.bytes().substr(0, limits::error_text_bytes)}};
  }
  budget_.spend(8 + 4 * arguments.named.size(), line);
  if (!arguments.positional.empty()) {
    fail_template(ErrorCode::unsupported, line, "namespace() and dict() of something unnamed");
  }
  if (function == Function::make_dict) {
    Dict dict;
    for (const auto& [name, value] : arguments.named) {
      dict.set(Text(name, TextOrigin::from_template), value);
    }
    return dict_value(std::move(dict));
  }
  Namespace& space = namespaces_.emplace_back();
  for (const auto& [name, value] : arguments.named) space.values[name] = value;
  return &space;
}

Value Interpreter::make_range(const Arguments& arguments, int line) {
  const bool from_zero = arguments.positional.size() == 1;
  const std::int64_t start = from_zero ? 0 : arguments.integer(0, "start", 0);
  const std::int64_t stop = arguments.integer(from_zero ? 0 : 1, "stop", 0);
  const std::int64_t step = arguments.integer(2, "step", 1);
  if (step == 0) fail_template(ErrorCode::invalid_argument, line, "a range with step 0");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    budget_.spend(2, line);
    items.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list_value(std::move(items));
}

}  // namespace copse::chat
