#pragma once
// What an expression of a template can be. Values never change once made, except namespaces,
// which the interpreter owns: so no value can keep another alive in a circle.
#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat_template/text.h"

namespace copse::chat {

class Budget;
struct List;
struct Dict;
struct Namespace;
struct Statement;  // of the syntax tree: a macro is called through it

struct Undefined {
  Undefined() = default;
  explicit Undefined(std::string_view of) : name(std::make_shared<const std::string>(of)) {}
  std::shared_ptr<const std::string> name;  // what was asked for, for the error of its user
};
struct None {};
enum class Function : std::uint8_t { raise_exception, range, make_namespace, make_dict };

using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;

using Value = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, ListPtr, DictPtr,
                           Namespace*, const Statement*, Function>;

struct List {
  std::vector<Value> items;
  int depth = 1;  // lists and dicts inside each other, itself counted
};

// In order of insertion, as Python's; keys are strings.
struct Dict {
  std::vector<std::pair<Text, Value>> entries;
  std::map<std::string, std::size_t, std::less<>> places;
  int depth = 1;

  const Value* find(std::string_view key) const;
  void set(const Text& key, Value value);
};

struct Namespace {
  std::map<std::string, Value, std::less<>> values;
};

Value text_value(Text text);
Value text_value(std::string_view bytes, TextOrigin origin = TextOrigin::from_template);
// Throws Failure beyond limits::template_depth: deeper values could not be taken apart safely.
Value list_value(std::vector<Value> items);
Value dict_value(Dict dict);

// All strings in it have the given origin.
Value from_json(const nlohmann::ordered_json& json, TextOrigin origin, int depth = 0);

inline const Text* as_text(const Value& value) {
  const auto* text = std::get_if<TextPtr>(&value);
  return text == nullptr ? nullptr : text->get();
}
inline const List* as_list(const Value& value) {
  const auto* list = std::get_if<ListPtr>(&value);
  return list == nullptr ? nullptr : list->get();
}
inline const Dict* as_dict(const Value& value) {
  const auto* dict = std::get_if<DictPtr>(&value);
  return dict == nullptr ? nullptr : dict->get();
}
inline bool is_undefined(const Value& value) {
  return std::holds_alternative<Undefined>(value);
}

// "a string", "a list" and so on, for errors.
std::string_view kind_name(const Value& value);

bool is_true(const Value& value);
// Pays per value and byte that is compared, as to_text and to_json_text do for what they write: a
// list that holds another twice, that one another twice, is longer than anyone can wait.
bool is_equal(const Value& a, const Value& b, Budget& budget, int line);

// As Python's str(): what {{ }} prints.
Text to_text(const Value& value, Budget& budget, int line);

struct JsonStyle {
  int indent = -1;  // -1: one line
  Text item_separator;
  Text key_separator;
};
// As Python's json.dumps(ensure_ascii=False); throws Failure for what is no JSON.
Text to_json_text(const Value& value, const JsonStyle& style, Budget& budget, int line);

}  // namespace copse::chat
