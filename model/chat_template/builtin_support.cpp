#include <algorithm>

#include "model/chat_template/budget.h"
#include "model/chat_template/builtins.h"

namespace copse::chat {
namespace {

constexpr std::size_t kValueBytes = 64;  // what an item of a list costs, roughly

}  // namespace

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

std::int64_t Arguments::integer(std::size_t place, std::string_view name,
                                std::int64_t otherwise) const {
  const Value* value = find(place, name);
  if (value == nullptr || std::holds_alternative<None>(*value)) return otherwise;
  if (const auto* number = std::get_if<std::int64_t>(value)) return *number;
  throw Failure{{ErrorCode::invalid_argument, "chat_template",
                 "argument '" + std::string(name) + "' must be an integer"}};
}

const Text* Arguments::text(std::size_t place, std::string_view name) const {
  const Value* value = find(place, name);
  if (value == nullptr || std::holds_alternative<None>(*value)) return nullptr;
  if (const Text* text = as_text(*value)) return text;
  throw Failure{{ErrorCode::invalid_argument, "chat_template",
                 "argument '" + std::string(name) + "' must be a string"}};
}

void fail_type(CallSite site, const std::string& what, const Value& value) {
  std::string kind(kind_name(value));
  if (const auto* undefined = std::get_if<Undefined>(&value)) {
    kind = "'" + (undefined->name ? undefined->name->substr(0, 64) : "") + "', which is undefined";
  }
  fail_template(ErrorCode::invalid_argument, site.line, what + " " + kind);
}

Value contains(CallSite site, const Value& container, const Value& item) {
  if (const Text* text = as_text(container)) {
    const Text* part = as_text(item);
    if (part == nullptr) fail_type(site, "'in' a string of", item);
    site.budget.spend_bytes(text->size(), site.line);
    return text->bytes().find(part->bytes()) != std::string::npos;
  }
  if (const List* list = as_list(container)) {
    site.budget.spend(list->items.size() + 1, site.line);
    return std::any_of(list->items.begin(), list->items.end(), [&](const Value& one) {
      return is_equal(one, item, site.budget, site.line);
    });
  }
  if (const Dict* dict = as_dict(container)) {
    const Text* key = as_text(item);
    return key != nullptr && dict->find(key->bytes()) != nullptr;
  }
  if (is_undefined(container)) return false;
  fail_type(site, "'in' of", container);
}

Value length_of(CallSite site, const Value& value) {
  if (const Text* text = as_text(value)) {
    site.budget.spend_bytes(text->size(), site.line);
    return static_cast<std::int64_t>(character_offsets(text->bytes()).size() - 1);
  }
  if (const List* list = as_list(value)) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = as_dict(value)) return static_cast<std::int64_t>(dict->entries.size());
  if (is_undefined(value)) return std::int64_t{0};
  fail_type(site, "length of", value);
}

std::vector<Value> items_of(CallSite site, const Value& value) {
  std::vector<Value> items;
  if (const List* list = as_list(value)) {
    site.budget.spend_bytes(list->items.size() * kValueBytes, site.line);
    items = list->items;
  } else if (const Dict* dict = as_dict(value)) {
    site.budget.spend_bytes(dict->entries.size() * kValueBytes, site.line);
    for (const auto& entry : dict->entries) items.push_back(text_value(entry.first));
  } else if (const Text* text = as_text(value)) {
    site.budget.spend(1 + text->size() * 2, site.line);  // each character becomes an object
    const std::vector<std::size_t> offsets = character_offsets(text->bytes());
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(text_value(text->part(offsets[i], offsets[i + 1])));
    }
  } else if (!is_undefined(value)) {
    fail_type(site, "a loop over", value);
  }
  return items;
}

Value stripped(CallSite site, const Text& text, const Text* characters, bool left, bool right) {
  site.budget.spend_text(text, site.line);
  std::string_view rest = text.bytes();
  std::size_t begin = 0;
  if (characters == nullptr) {
    if (left) begin = leading_space(rest);
    rest.remove_prefix(begin);
    if (right) rest.remove_suffix(trailing_space(rest));
    return text_value(text.part(begin, begin + rest.size()));
  }
  const std::vector<std::size_t> set = character_offsets(characters->bytes());
  const auto in_set = [&](std::string_view one) {
    for (std::size_t i = 0; i + 1 < set.size(); ++i) {
      if (characters->bytes().compare(set[i], set[i + 1] - set[i], one) == 0) return true;
    }
    return false;
  };
  const std::vector<std::size_t> offsets = character_offsets(rest);
  std::size_t first = 0;
  std::size_t last = offsets.size() - 1;
  const auto character = [&](std::size_t i) {
    site.budget.spend(set.size() / 8, site.line);
    return rest.substr(offsets[i], offsets[i + 1] - offsets[i]);
  };
  while (left && first < last && in_set(character(first))) ++first;
  while (right && last > first && in_set(character(last - 1))) --last;
  return text_value(text.part(offsets[first], offsets[last]));
}

Value replaced(CallSite site, const Text& text, const Text& from, const Text& to,
               std::int64_t count) {
  if (from.empty()) {
    fail_template(ErrorCode::unsupported, site.line, "replace of an empty string");
  }
  site.budget.spend_text(text, site.line);
  Text out;
  std::size_t at = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    const std::size_t found = text.bytes().find(from.bytes(), at);
    if (found == std::string::npos) break;
    out.append_part(text, at, found);
    out.append(to);
    at = found + from.size();
    site.budget.spend(1 + to.size() / 64 + to.span_count() / 4, site.line);
    site.budget.spend_bytes(out.size() > limits::template_output_bytes ? out.size() : 0, site.line);
  }
  out.append_part(text, at, text.size());
  return text_value(std::move(out));
}

// ASCII letters only: other letters stay as they are.
Value with_case(CallSite site, const Text& text, std::string_view name) {
  site.budget.spend_text(text, site.line);
  std::string bytes = text.bytes();
  bool first = true;
  for (char& c : bytes) {
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    const bool raise = name == "upper" || (first && name != "lower");
    if (lower && raise) c = static_cast<char>(c - 'a' + 'A');
    if (upper && !raise) c = static_cast<char>(c - 'A' + 'a');
    const bool letter = lower || upper || (c & 0x80) != 0;
    first = name == "title" && !letter;
  }
  return text_value(text.with_bytes(std::move(bytes)));
}

Value dict_items(CallSite site, const Dict& dict) {
  site.budget.spend_bytes(dict.entries.size() * 4 * kValueBytes, site.line);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(list_value({text_value(key), value}));
  }
  return list_value(std::move(items));
}

Value member_of(CallSite site, const Value& value, std::string_view name) {
  if (const Dict* dict = as_dict(value)) {
    const Value* found = dict->find(name);
    return found == nullptr ? Undefined{name} : *found;
  }
  if (const auto* space = std::get_if<Namespace*>(&value)) {
    const auto found = (*space)->values.find(name);
    return found == (*space)->values.end() ? Value(Undefined{name}) : found->second;
  }
  if (is_undefined(value) || std::holds_alternative<None>(value)) {
    if (std::holds_alternative<None>(value)) return Undefined{name};
    fail_type(site, "'" + std::string(name.substr(0, 64)) + "' of", value);
  }
  return Undefined{name};
}

}  // namespace copse::chat
