#include "model/chat_template/interpreter.h"

#include "model/chat_template/interpreter_depth.h"

namespace copse::chat {

Interpreter::Interpreter(Scope globals) {
  globals.emplace("raise_exception", Function::raise_exception);
  globals.emplace("range", Function::range);
  globals.emplace("namespace", Function::make_namespace);
  globals.emplace("dict", Function::make_dict);
  scopes_.push_back(std::move(globals));
  scopes_.emplace_back();
}

Text Interpreter::render(const Body& body) {
  static_cast<void>(run(body));
  return std::move(output_);
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = run(*statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const Deeper deeper(*this, statement.line);
  budget_.spend(1, statement.line);
  switch (statement.kind) {
    case StatementKind::data:
      print(text_value(statement.text), statement.line);
      return Flow::next;
    case StatementKind::output:
      print(evaluate(*statement.value), statement.line);
      return Flow::next;
    case StatementKind::condition:
      return run_condition(statement);
    case StatementKind::loop:
      return run_loop(statement);
    case StatementKind::assign:
      run_assign(statement);
      return Flow::next;
    case StatementKind::capture: {
      Value text = text_value(capture(statement.body));
      if (statement.text.empty()) {
        bind(statement.targets, text, statement.line);
      } else {
        fail_template(ErrorCode::unsupported, statement.line, "a set block of an attribute");
      }
      return Flow::next;
    }
    case StatementKind::macro:
      scopes_.back()[statement.text] = &statement;
      return Flow::next;
    case StatementKind::group:
      return run(statement.body);
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_condition(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    budget_.spend(1, statement.line);
    if (!branch.condition || is_true(evaluate(*branch.condition))) return run(branch.body);
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement) {
  std::vector<Value> items = items_of(site(statement.line), evaluate(*statement.value));
  scopes_.emplace_back();
  if (statement.filter) {
    std::vector<Value> kept;
    for (Value& item : items) {
      budget_.spend(1, statement.line);
      bind(statement.targets, item, statement.line);
      if (is_true(evaluate(*statement.filter))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  const std::size_t scope = scopes_.size() - 1;
  loops_.push_back({0, items, scope});
  for (std::size_t i = 0; i < items.size(); ++i) {
    budget_.spend(1, statement.line);
    scopes_.back().clear();
    loops_.back().index = i;
    bind(statement.targets, items[i], statement.line);
    if (run(statement.body) == Flow::break_loop) break;
  }
  loops_.pop_back();
  scopes_.back().clear();
  const Flow flow = items.empty() ? run(statement.otherwise) : Flow::next;
  scopes_.pop_back();
  return flow;
}

void Interpreter::run_assign(const Statement& statement) {
  Value value = evaluate(*statement.value);
  if (statement.text.empty()) return bind(statement.targets, value, statement.line);
  const Value* target = look_up(statement.targets[0]);
  const auto* space = target == nullptr ? nullptr : std::get_if<Namespace*>(target);
  if (space == nullptr) {
    fail_template(ErrorCode::invalid_argument, statement.line,
                  "'" + statement.targets[0].substr(0, 64) + "' is no namespace");
  }
  (*space)->values[statement.text] = std::move(value);
}

void Interpreter::bind(const std::vector<std::string>& targets, const Value& value, int line) {
  if (targets.size() == 1) {
    scopes_.back()[targets[0]] = value;
    return;
  }
  const std::vector<Value> parts = items_of(site(line), value);
  if (parts.size() != targets.size()) {
    fail_template(
        ErrorCode::invalid_argument, line,
        std::to_string(targets.size()) + " names for " + std::to_string(parts.size()) + " values");
  }
  for (std::size_t i = 0; i < parts.size(); ++i) scopes_.back()[targets[i]] = parts[i];
}

void Interpreter::print(const Value& value, int line) {
  const Text text = to_text(value, budget_, line);
  output_.append(text);
  if (output_.size() > limits::template_output_bytes ||
      output_.span_count() > limits::template_spans) {
    fail_template(ErrorCode::resource_exhausted, line, "the rendered text is too long");
  }
}

Text Interpreter::capture(const Body& body) {
  Text outer = std::move(output_);
  output_ = Text();
  static_cast<void>(run(body));  // the parser lets no break or continue out of a captured body
  std::swap(outer, output_);
  return outer;
}

}  // namespace copse::chat
