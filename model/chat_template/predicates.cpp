// The tests of "x is name".
#include "model/chat_template/budget.h"
#include "model/chat_template/builtins.h"
#include "model/chat_template/operators.h"

namespace copse::chat {
namespace {

template <class T>
bool is_a(const Value& value) {
  return std::holds_alternative<T>(value);
}

const Value& needed(CallSite site, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    fail_template(ErrorCode::malformed, site.line, "a test needs an argument");
  }
  return arguments.positional[0];
}

std::int64_t whole(CallSite site, const Value& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr) fail_type(site, "this test of", value);
  return *number;
}

bool divisible(CallSite site, const Value& value, const Arguments& arguments) {
  const std::int64_t by = whole(site, needed(site, arguments));
  if (by == 0) fail_template(ErrorCode::invalid_argument, site.line, "division by zero");
  return by == -1 || whole(site, value) % by == 0;
}

template <char kFirst, bool kEqual>
bool compare(CallSite site, const Value& value, const Arguments& arguments) {
  const std::string name = std::string(1, kFirst) + (kEqual ? "=" : "");
  return is_true(compare_values(site, name, value, needed(site, arguments)));
}

struct Named {
  std::string_view name;
  Test test;
};

using Site = CallSite;
using Args = const Arguments&;
using In = const Value&;

const Named kTests[] = {
    {"defined", [](Site, In v, Args) { return !is_undefined(v); }},
    {"undefined", [](Site, In v, Args) { return is_undefined(v); }},
    {"none", [](Site, In v, Args) { return is_a<None>(v); }},
    {"string", [](Site, In v, Args) { return as_text(v) != nullptr; }},
    {"mapping", [](Site, In v, Args) { return as_dict(v) != nullptr; }},
    {"sequence", [](Site, In v, Args) { return as_text(v) || as_list(v) || as_dict(v); }},
    {"iterable",
     [](Site, In v, Args) { return as_text(v) || as_list(v) || as_dict(v) || is_undefined(v); }},
    {"callable", [](Site, In v, Args) { return is_a<Function>(v) || is_a<const Statement*>(v); }},
    {"boolean", [](Site, In v, Args) { return is_a<bool>(v); }},
    {"true", [](Site, In v, Args) { return is_a<bool>(v) && std::get<bool>(v); }},
    {"false", [](Site, In v, Args) { return is_a<bool>(v) && !std::get<bool>(v); }},
    {"integer", [](Site, In v, Args) { return is_a<std::int64_t>(v); }},
    {"float", [](Site, In v, Args) { return is_a<double>(v); }},
    {"number",
     [](Site, In v, Args) { return is_a<std::int64_t>(v) || is_a<double>(v) || is_a<bool>(v); }},
    {"odd", [](Site s, In v, Args) { return whole(s, v) % 2 != 0; }},
    {"even", [](Site s, In v, Args) { return whole(s, v) % 2 == 0; }},
    {"divisibleby", divisible},
    {"in", [](Site s, In v, Args a) { return is_true(contains(s, needed(s, a), v)); }},
    {"eq", [](Site s, In v, Args a) { return is_equal(v, needed(s, a), s.budget, s.line); }},
    {"equalto", [](Site s, In v, Args a) { return is_equal(v, needed(s, a), s.budget, s.line); }},
    {"ne", [](Site s, In v, Args a) { return !is_equal(v, needed(s, a), s.budget, s.line); }},
    {"lt", compare<'<', false>},
    {"lessthan", compare<'<', false>},
    {"le", compare<'<', true>},
    {"gt", compare<'>', false>},
    {"greaterthan", compare<'>', false>},
    {"ge", compare<'>', true>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Named& one : kTests) {
    if (one.name == name) return one.test;
  }
  return nullptr;
}

}  // namespace copse::chat
