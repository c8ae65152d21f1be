#include "model/chat_template/value.h"

#include <algorithm>

#include "base/limits.h"
#include "model/chat_template/budget.h"
#include "model/chat_template/failure.h"

namespace copse::chat {
namespace {

int depth_of(const Value& value) {
  if (const List* list = as_list(value)) return list->depth;
  if (const Dict* dict = as_dict(value)) return dict->depth;
  return 0;
}

void check_depth(int depth) {
  if (depth <= limits::template_depth) return;
  throw Failure{{ErrorCode::resource_exhausted, "chat_template", "values nest too deeply"}};
}

// Numbers and booleans compare as numbers; others have none.
const double* number_of(const Value& value, double& room) {
  if (const auto* flag = std::get_if<bool>(&value))
    room = *flag ? 1 : 0;
  else if (const auto* integer = std::get_if<std::int64_t>(&value))
    room = double(*integer);
  else if (const auto* real = std::get_if<double>(&value))
    room = *real;
  else
    return nullptr;
  return &room;
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto place = places.find(key);
  return place == places.end() ? nullptr : &entries[place->second].second;
}

void Dict::set(const Text& key, Value value) {
  depth = std::max(depth, 1 + depth_of(value));
  const auto [place, added] = places.emplace(key.bytes(), entries.size());
  if (added) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[place->second].second = std::move(value);
  }
}

Value text_value(Text text) {
  return std::make_shared<const Text>(std::move(text));
}

Value text_value(std::string_view bytes, TextOrigin origin) {
  return text_value(Text(bytes, origin));
}

Value list_value(std::vector<Value> items) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, 1 + depth_of(item));
  check_depth(depth);
  return std::make_shared<const List>(List{std::move(items), depth});
}

Value dict_value(Dict dict) {
  check_depth(dict.depth);
  return std::make_shared<const Dict>(std::move(dict));
}

Value from_json(const nlohmann::ordered_json& json, TextOrigin origin, int depth) {
  check_depth(depth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<std::int64_t>();
    case Type::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX) return json.get<double>();
      return json.get<std::int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return text_value(json.get_ref<const std::string&>(), origin);
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(item, origin, depth + 1));
      return list_value(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        dict.set(Text(key, origin), from_json(item, origin, depth + 1));
      }
      return dict_value(std::move(dict));
    }
    default:
      return None{};
  }
}

std::string_view kind_name(const Value& value) {
  constexpr std::string_view kNames[] = {"undefined",   "none",     "a boolean", "an integer",
                                         "a number",    "a string", "a list",    "a mapping",
                                         "a namespace", "a macro",  "a function"};
  return kNames[value.index()];
}

bool is_true(const Value& value) {
  double room = 0;
  if (const double* number = number_of(value, room)) return *number != 0;
  if (const Text* text = as_text(value)) return !text->empty();
  if (const List* list = as_list(value)) return !list->items.empty();
  if (const Dict* dict = as_dict(value)) return !dict->entries.empty();
  return !is_undefined(value) && !std::holds_alternative<None>(value);
}

bool is_equal(const Value& a, const Value& b, Budget& budget, int line) {
  budget.spend(1, line);
  double room_a = 0;
  double room_b = 0;
  const auto* integer_a = std::get_if<std::int64_t>(&a);
  const auto* integer_b = std::get_if<std::int64_t>(&b);
  if (integer_a != nullptr && integer_b != nullptr) return *integer_a == *integer_b;
  const double* number_a = number_of(a, room_a);
  const double* number_b = number_of(b, room_b);
  if (number_a != nullptr && number_b != nullptr) return *number_a == *number_b;
  if (a.index() != b.index()) return false;
  if (const Text* text = as_text(a)) {
    const Text* other = as_text(b);
    if (text->size() != other->size()) return false;
    budget.spend_bytes(text->size(), line);
    return text->bytes() == other->bytes();
  }
  if (const List* list = as_list(a)) {
    const List* other = as_list(b);
    return std::equal(
        list->items.begin(), list->items.end(), other->items.begin(), other->items.end(),
        [&](const Value& one, const Value& two) { return is_equal(one, two, budget, line); });
  }
  if (const Dict* dict = as_dict(a)) {
    const Dict* other = as_dict(b);
    return dict->entries.size() == other->entries.size() &&
           std::all_of(dict->entries.begin(), dict->entries.end(), [&](const auto& entry) {
             const Value* match = other->find(entry.first.bytes());
             return match != nullptr && is_equal(entry.second, *match, budget, line);
           });
  }
  if (const auto* space = std::get_if<Namespace*>(&a)) return *space == std::get<Namespace*>(b);
  if (const auto* macro = std::get_if<const Statement*>(&a)) {
    return *macro == std::get<const Statement*>(b);
  }
  if (const auto* function = std::get_if<Function>(&a)) return *function == std::get<Function>(b);
  return true;  // undefined or none
}

}  // namespace copse::chat
