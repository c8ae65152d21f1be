#pragma once
// Filters, tests and methods by name. Unknown filters and tests are refused when a template is
// parsed; what a method is called on is known only when it runs.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat_template/value.h"

namespace copse::chat {

class Budget;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `place` or called `name`; null if it was not given.
  const Value* find(std::size_t place, std::string_view name) const;
  // The same as an integer or a string; throws Failure for another kind.
  std::int64_t integer(std::size_t place, std::string_view name, std::int64_t otherwise) const;
  const Text* text(std::size_t place, std::string_view name) const;  // null if absent or none
};

struct CallSite {
  Budget& budget;
  int line;
};

using Filter = Value (*)(CallSite, const Value& input, const Arguments&);
using Test = bool (*)(CallSite, const Value& input, const Arguments&);

Filter find_filter(std::string_view name);  // null: unknown
Test find_test(std::string_view name);

// Calls input.name(arguments); throws Failure that names a method which is not known.
Value call_method(CallSite site, const Value& input, const std::string& name,
                  const Arguments& arguments);
bool has_method(const Value& input, std::string_view name);

// Shared by operators, filters and methods.
[[noreturn]] void fail_type(CallSite site, const std::string& what, const Value& value);
Value contains(CallSite site, const Value& container, const Value& item);
Value length_of(CallSite site, const Value& value);
// The items of a list, the keys of a mapping, the characters of a string; nothing of undefined.
std::vector<Value> items_of(CallSite site, const Value& value);
Value stripped(CallSite site, const Text& text, const Text* characters, bool left, bool right);
Value replaced(CallSite site, const Text& text, const Text& from, const Text& to,
               std::int64_t count);
Value with_case(CallSite site, const Text& text, std::string_view name);
Value dict_items(CallSite site, const Dict& dict);
// The attribute or item that `a.name` and `a['name']` mean; undefined if there is none.
Value member_of(CallSite site, const Value& value, std::string_view name);

}  // namespace copse::chat
