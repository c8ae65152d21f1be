// Methods of strings and mappings, as Python names them.
#include <algorithm>

#include "model/chat_template/budget.h"
#include "model/chat_template/builtins.h"

namespace copse::chat {
namespace {

using Site = CallSite;
using Args = const Arguments&;

const Text& needed(Site site, Args arguments, std::size_t place) {
  const Text* text = arguments.text(place, "");
  if (text == nullptr) {
    fail_template(ErrorCode::malformed, site.line, "a method needs a string");
  }
  return *text;
}

Value split_at_space(Site site, const Text& text, std::int64_t most) {
  std::vector<Value> parts;
  std::size_t at = leading_space(text.bytes());
  while (at < text.size()) {
    site.budget.spend(2, site.line);
    std::size_t end = at;
    const bool last = most >= 0 && std::ssize(parts) >= most;
    if (last) {
      end = text.size() - trailing_space(text.bytes());
    } else {
      while (end < text.size() && leading_space(std::string_view(text.bytes()).substr(end, 3)) == 0)
        ++end;
    }
    parts.push_back(text_value(text.part(at, end)));
    if (last) break;
    at = end + leading_space(std::string_view(text.bytes()).substr(end));
  }
  return list_value(std::move(parts));
}

Value split(Site site, const Text& text, Args arguments, bool from_right) {
  site.budget.spend_text(text, site.line);
  const Text* separator = arguments.text(0, "sep");
  const std::int64_t most = arguments.integer(1, "maxsplit", -1);
  if (separator == nullptr && from_right && most >= 0) {
    fail_template(ErrorCode::unsupported, site.line, "rsplit at white space with a limit");
  }
  if (separator == nullptr) return split_at_space(site, text, most);
  if (separator->empty()) {
    fail_template(ErrorCode::invalid_argument, site.line, "split at an empty string");
  }
  std::vector<Value> parts;
  if (!from_right) {
    std::size_t at = 0;
    while (most < 0 || std::ssize(parts) < most) {
      const std::size_t found = text.bytes().find(separator->bytes(), at);
      if (found == std::string::npos) break;
      site.budget.spend(2, site.line);
      parts.push_back(text_value(text.part(at, found)));
      at = found + separator->size();
    }
    parts.push_back(text_value(text.part(at, text.size())));
    return list_value(std::move(parts));
  }
  std::size_t end = text.size();
  while ((most < 0 || std::ssize(parts) < most) && end >= separator->size()) {
    const std::size_t found = text.bytes().rfind(separator->bytes(), end - separator->size());
    if (found == std::string::npos) break;
    site.budget.spend(2, site.line);
    parts.push_back(text_value(text.part(found + separator->size(), end)));
    end = found;
  }
  parts.push_back(text_value(text.part(0, end)));
  std::reverse(parts.begin(), parts.end());
  return list_value(std::move(parts));
}

Value split_lines(Site site, const Text& text) {
  std::vector<Value> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    site.budget.spend(2, site.line);
    const std::size_t end = std::min(text.bytes().find_first_of("\r\n", at), text.size());
    lines.push_back(text_value(text.part(at, end)));
    at = end + (text.bytes().compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return list_value(std::move(lines));
}

bool has_end(const Text& text, const Text& end, bool at_start) {
  return at_start ? text.bytes().starts_with(end.bytes()) : text.bytes().ends_with(end.bytes());
}

Value starts_or_ends(Site site, const Text& text, Args arguments, bool at_start) {
  const Value* argument = arguments.find(0, "");
  if (const List* list = argument == nullptr ? nullptr : as_list(*argument)) {
    return std::any_of(list->items.begin(), list->items.end(), [&](const Value& one) {
      const Text* end = as_text(one);
      if (end == nullptr) fail_type(site, "startswith and endswith of", one);
      return has_end(text, *end, at_start);
    });
  }
  return has_end(text, needed(site, arguments, 0), at_start);
}

Value without_end(Site site, const Text& text, Args arguments, bool at_start) {
  const Text& end = needed(site, arguments, 0);
  site.budget.spend_text(text, site.line);
  if (!has_end(text, end, at_start)) return text_value(text);
  return text_value(at_start ? text.part(end.size(), text.size())
                             : text.part(0, text.size() - end.size()));
}

Value find(Site site, const Text& text, Args arguments, bool last) {
  const std::string& wanted = needed(site, arguments, 0).bytes();
  site.budget.spend_bytes(text.size(), site.line);
  const std::size_t at = last ? text.bytes().rfind(wanted) : text.bytes().find(wanted);
  if (at == std::string::npos) return std::int64_t{-1};
  return std::ssize(character_offsets(std::string_view(text.bytes()).substr(0, at))) - 1;
}

Value count(Site site, const Text& text, Args arguments) {
  const std::string& wanted = needed(site, arguments, 0).bytes();
  site.budget.spend_bytes(text.size(), site.line);
  if (wanted.empty()) return std::ssize(character_offsets(text.bytes()));
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = text.bytes().find(wanted, at)) != std::string::npos;) {
    ++found;
    at += wanted.size();
  }
  return found;
}

Value join(Site site, const Text& separator, Args arguments) {
  const Value* list = arguments.find(0, "");
  Text out;
  bool first = true;
  const std::vector<Value> items = list == nullptr ? std::vector<Value>() : items_of(site, *list);
  for (const Value& item : items) {
    const Text* text = as_text(item);
    if (text == nullptr) fail_type(site, "join of", item);
    if (!first) out.append(separator);
    out.append(*text);
    first = false;
    site.budget.spend_text(*text, site.line);
    site.budget.spend_text(separator, site.line);
    if (out.size() > limits::template_output_bytes) site.budget.spend_bytes(out.size(), site.line);
  }
  return text_value(std::move(out));
}

bool all_of(const Text& text, bool (*is)(char)) {
  return !text.empty() && std::all_of(text.bytes().begin(), text.bytes().end(), is);
}

using TextMethod = Value (*)(Site, const Text&, Args);
struct NamedTextMethod {
  std::string_view name;
  TextMethod call;
};

const NamedTextMethod kTextMethods[] = {
    {"strip",
     [](Site s, const Text& t, Args a) { return stripped(s, t, a.text(0, "chars"), true, true); }},
    {"lstrip",
     [](Site s, const Text& t, Args a) { return stripped(s, t, a.text(0, "chars"), true, false); }},
    {"rstrip",
     [](Site s, const Text& t, Args a) { return stripped(s, t, a.text(0, "chars"), false, true); }},
    {"split", [](Site s, const Text& t, Args a) { return split(s, t, a, false); }},
    {"rsplit", [](Site s, const Text& t, Args a) { return split(s, t, a, true); }},
    {"splitlines", [](Site s, const Text& t, Args) { return split_lines(s, t); }},
    {"startswith", [](Site s, const Text& t, Args a) { return starts_or_ends(s, t, a, true); }},
    {"endswith", [](Site s, const Text& t, Args a) { return starts_or_ends(s, t, a, false); }},
    {"removeprefix", [](Site s, const Text& t, Args a) { return without_end(s, t, a, true); }},
    {"removesuffix", [](Site s, const Text& t, Args a) { return without_end(s, t, a, false); }},
    {"find", [](Site s, const Text& t, Args a) { return find(s, t, a, false); }},
    {"rfind", [](Site s, const Text& t, Args a) { return find(s, t, a, true); }},
    {"count", count},
    {"join", join},
    {"upper", [](Site s, const Text& t, Args) { return with_case(s, t, "upper"); }},
    {"lower", [](Site s, const Text& t, Args) { return with_case(s, t, "lower"); }},
    {"title", [](Site s, const Text& t, Args) { return with_case(s, t, "title"); }},
    {"capitalize", [](Site s, const Text& t, Args) { return with_case(s, t, "capitalize"); }},
    {"replace",
     [](Site s, const Text& t, Args a) {
       return replaced(s, t, needed(s, a, 0), needed(s, a, 1), a.integer(2, "count", -1));
     }},
    {"isdigit",
     [](Site, const Text& t, Args) -> Value {
       return all_of(t, [](char c) { return c >= '0' && c <= '9'; });
     }},
};

using DictMethod = Value (*)(Site, const Dict&, Args);
struct NamedDictMethod {
  std::string_view name;
  DictMethod call;
};

Value get(Site site, const Dict& dict, Args arguments) {
  const Value* found = dict.find(needed(site, arguments, 0).bytes());
  const Value* otherwise = arguments.find(1, "default");
  if (found != nullptr) return *found;
  return otherwise == nullptr ? Value(None{}) : *otherwise;
}

Value values(Site site, const Dict& dict, Args) {
  site.budget.spend(dict.entries.size(), site.line);
  std::vector<Value> items;
  for (const auto& entry : dict.entries) items.push_back(entry.second);
  return list_value(std::move(items));
}

const NamedDictMethod kDictMethods[] = {
    {"get", get},
    {"items", [](Site s, const Dict& d, Args) { return dict_items(s, d); }},
    {"keys", [](Site s, const Dict& d,
                Args) { return list_value(items_of(s, std::make_shared<const Dict>(d))); }},
    {"values", values},
};

template <class Table>
auto find_method(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table),
                      [name](const auto& one) { return one.name == name; });
}

}  // namespace

bool has_method(const Value& input, std::string_view name) {
  if (as_text(input) != nullptr) {
    return find_method(kTextMethods, name) != std::end(kTextMethods);
  }
  return as_dict(input) != nullptr && find_method(kDictMethods, name) != std::end(kDictMethods);
}

Value call_method(CallSite site, const Value& input, const std::string& name,
                  const Arguments& arguments) {
  if (!has_method(input, name)) {
    if (is_undefined(input)) fail_type(site, "'" + name.substr(0, 64) + "()' of", input);
    fail_template(
        ErrorCode::unsupported, site.line,
        "unknown method '" + name.substr(0, 64) + "' of " + std::string(kind_name(input)));
  }
  if (const Text* text = as_text(input)) {
    return find_method(kTextMethods, name)->call(site, *text, arguments);
  }
  return find_method(kDictMethods, name)->call(site, *as_dict(input), arguments);
}

}  // namespace copse::chat
