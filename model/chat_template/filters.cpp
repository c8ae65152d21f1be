// The filters of "x | name".
#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/chat_template/budget.h"
#include "model/chat_template/builtins.h"

namespace copse::chat {
namespace {

using Site = CallSite;
using Args = const Arguments&;
using In = const Value&;

// A filter of strings takes anything, printed.
Text printed(Site site, In value) {
  Text text = to_text(value, site.budget, site.line);
  site.budget.spend_bytes(text.size(), site.line);
  return text;
}

Text separator(Args arguments, std::size_t place, std::string_view otherwise) {
  const Value* given = arguments.find(99, "separators");
  const List* pair = given == nullptr ? nullptr : as_list(*given);
  const Text* text =
      pair != nullptr && pair->items.size() == 2 ? as_text(pair->items[place]) : nullptr;
  return text == nullptr ? Text(otherwise, TextOrigin::from_template) : *text;
}

Value tojson(Site site, In value, Args arguments) {
  for (const auto& [name, given] : arguments.named) {
    const bool sorted = name == "sort_keys" && is_true(given);
    const bool ascii = name == "ensure_ascii" && is_true(given);
    const bool known =
        name == "indent" || name == "separators" || name == "sort_keys" || name == "ensure_ascii";
    if (sorted || ascii || !known) {
      fail_template(ErrorCode::unsupported, site.line, "tojson with '" + name.substr(0, 64) + "'");
    }
  }
  const std::int64_t indent = arguments.integer(0, "indent", -1);
  if (indent > 16) fail_template(ErrorCode::unsupported, site.line, "tojson with a wide indent");
  JsonStyle style{static_cast<int>(std::max<std::int64_t>(indent, -1)),
                  separator(arguments, 0, indent >= 0 ? "," : ", "), separator(arguments, 1, ": ")};
  Text text = to_json_text(value, style, site.budget, site.line);
  site.budget.spend_text(text, site.line);
  return text_value(std::move(text));
}

Value defaulted(Site, In value, Args arguments) {
  const Value* otherwise = arguments.find(0, "default_value");
  const Value* falsy_too = arguments.find(1, "boolean");
  const bool replace =
      is_undefined(value) || (falsy_too != nullptr && is_true(*falsy_too) && !is_true(value));
  if (!replace) return value;
  return otherwise == nullptr ? text_value("") : *otherwise;
}

Value join(Site site, In value, Args arguments) {
  const Text* given = arguments.text(0, "d");
  const Text* attribute = arguments.text(1, "attribute");
  const Text between = given == nullptr ? Text() : *given;
  Text out;
  bool first = true;
  for (const Value& item : items_of(site, value)) {
    if (!first) out.append(between);
    out.append(
        printed(site, attribute == nullptr ? item : member_of(site, item, attribute->bytes())));
    first = false;
    site.budget.spend_text(between, site.line);
    if (out.size() > limits::template_output_bytes) site.budget.spend_bytes(out.size(), site.line);
  }
  return text_value(std::move(out));
}

Value first_or_last(Site site, In value, bool first) {
  const std::vector<Value> items = items_of(site, value);
  if (items.empty()) return Undefined{first ? "first" : "last"};
  return first ? items.front() : items.back();
}

Value reversed(Site site, In value) {
  std::vector<Value> items = items_of(site, value);
  std::reverse(items.begin(), items.end());
  if (as_text(value) == nullptr) return list_value(std::move(items));
  Text out;
  for (const Value& item : items) out.append(*as_text(item));
  return text_value(std::move(out));
}

Value to_integer(Site site, In value, Args arguments) {
  if (const auto* flag = std::get_if<bool>(&value)) return std::int64_t{*flag ? 1 : 0};
  if (std::holds_alternative<std::int64_t>(value)) return value;
  if (const auto* real = std::get_if<double>(&value)) {
    if (std::fabs(*real) < 9e18) return static_cast<std::int64_t>(*real);
  }
  if (const Text* text = as_text(value)) {
    std::int64_t number = 0;
    const std::string& bytes = text->bytes();
    const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
    if (read.ec == std::errc() && read.ptr == bytes.data() + bytes.size()) return number;
  }
  static_cast<void>(site);
  return arguments.integer(0, "default", 0);
}

Value to_real(Site, In value, Args) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return double(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  double number = 0;
  if (const Text* text = as_text(value)) {
    const std::string& bytes = text->bytes();
    const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
    if (read.ec != std::errc() || read.ptr != bytes.data() + bytes.size()) number = 0;
  }
  return number;
}

Value absolute(Site site, In value, Args) {
  if (const auto* real = std::get_if<double>(&value)) return std::fabs(*real);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (integer == nullptr || *integer == INT64_MIN) fail_type(site, "abs of", value);
  return std::abs(*integer);
}

Value items(Site site, In value, Args) {
  if (is_undefined(value)) return list_value({});
  const Dict* dict = as_dict(value);
  if (dict == nullptr) fail_type(site, "items of", value);
  return dict_items(site, *dict);
}

Value indent(Site site, In value, Args arguments) {
  const Text text = printed(site, value);
  const std::int64_t width = arguments.integer(0, "width", 4);
  if (width < 0 || width > 64) {
    fail_template(ErrorCode::unsupported, site.line, "indent of more than 64 spaces");
  }
  const Value* first = arguments.find(1, "first");
  const Value* blank = arguments.find(2, "blank");
  const std::string margin(static_cast<std::size_t>(width), ' ');
  Text out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.bytes().find('\n', at), text.size());
    const bool wanted = at == 0 ? first != nullptr && is_true(*first)
                                : end > at || (blank != nullptr && is_true(*blank));
    if (at > 0) out.append_part(text, at - 1, at);
    if (wanted) out.append(margin, TextOrigin::from_template);
    out.append_part(text, at, end);
    site.budget.spend(2, site.line);
    at = end + 1;
  }
  site.budget.spend_text(out, site.line);
  return text_value(std::move(out));
}

// Jinja's map and select take whatever is false for an empty list.
std::vector<Value> items_or_none(Site site, In value) {
  return is_true(value) ? items_of(site, value) : std::vector<Value>();
}

// map('filter', ...) and map(attribute='name').
Value map(Site site, In value, Args arguments) {
  std::vector<Value> out;
  const Text* attribute = arguments.text(99, "attribute");
  const Text* name = attribute == nullptr ? arguments.text(0, "") : nullptr;
  const Filter filter = name == nullptr ? nullptr : find_filter(name->bytes());
  if (attribute == nullptr && filter == nullptr) {
    fail_template(
        ErrorCode::unsupported, site.line,
        "map with " + (name == nullptr ? "no filter"
                                       : "unknown filter '" + name->bytes().substr(0, 64) + "'"));
  }
  Arguments rest = arguments;
  if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
  const Value* otherwise = arguments.find(99, "default");
  for (const Value& item : items_or_none(site, value)) {
    site.budget.spend(1, site.line);
    Value one =
        attribute == nullptr ? filter(site, item, rest) : member_of(site, item, attribute->bytes());
    if (attribute != nullptr && is_undefined(one) && otherwise != nullptr) one = *otherwise;
    out.push_back(std::move(one));
  }
  return list_value(std::move(out));
}

// select, reject ('test', ...) and selectattr, rejectattr ('name', 'test', ...).
Value choose(Site site, In value, Args arguments, bool by_attribute, bool keep) {
  const Text* attribute = by_attribute ? arguments.text(0, "") : nullptr;
  const std::size_t place = by_attribute ? 1 : 0;
  const Text* name = arguments.text(place, "");
  const Test test = name == nullptr ? nullptr : find_test(name->bytes());
  if ((by_attribute && attribute == nullptr) || (name != nullptr && test == nullptr)) {
    fail_template(ErrorCode::unsupported, site.line, "select and reject with an unknown test");
  }
  Arguments rest;
  for (std::size_t i = place + 1; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  std::vector<Value> out;
  for (const Value& item : items_or_none(site, value)) {
    site.budget.spend(1, site.line);
    const Value tested = attribute == nullptr ? item : member_of(site, item, attribute->bytes());
    const bool holds = test == nullptr ? is_true(tested) : test(site, tested, rest);
    if (holds == keep) out.push_back(item);
  }
  return list_value(std::move(out));
}

Value unique(Site site, In value, Args) {
  std::vector<Value> out;
  for (const Value& item : items_of(site, value)) {
    site.budget.spend(out.size() + 1, site.line);
    const bool seen = std::any_of(out.begin(), out.end(), [&](const Value& one) {
      return is_equal(one, item, site.budget, site.line);
    });
    if (!seen) out.push_back(item);
  }
  return list_value(std::move(out));
}

Value replace(Site site, In value, Args arguments) {
  const Text* from = arguments.text(0, "old");
  const Text* to = arguments.text(1, "new");
  if (from == nullptr || to == nullptr) {
    fail_template(ErrorCode::malformed, site.line, "replace needs two strings");
  }
  return replaced(site, printed(site, value), *from, *to, arguments.integer(2, "count", -1));
}

struct Named {
  std::string_view name;
  Filter filter;
};

const Named kFilters[] = {
    {"trim", [](Site s, In v,
                Args a) { return stripped(s, printed(s, v), a.text(0, "chars"), true, true); }},
    {"tojson", tojson},
    {"length", [](Site s, In v, Args) { return length_of(s, v); }},
    {"count", [](Site s, In v, Args) { return length_of(s, v); }},
    {"default", defaulted},
    {"d", defaulted},
    {"join", join},
    {"upper", [](Site s, In v, Args) { return with_case(s, printed(s, v), "upper"); }},
    {"lower", [](Site s, In v, Args) { return with_case(s, printed(s, v), "lower"); }},
    {"title", [](Site s, In v, Args) { return with_case(s, printed(s, v), "title"); }},
    {"capitalize", [](Site s, In v, Args) { return with_case(s, printed(s, v), "capitalize"); }},
    {"replace", replace},
    {"items", items},
    {"first", [](Site s, In v, Args) { return first_or_last(s, v, true); }},
    {"last", [](Site s, In v, Args) { return first_or_last(s, v, false); }},
    {"list", [](Site s, In v, Args) { return list_value(items_of(s, v)); }},
    {"string", [](Site s, In v, Args) { return text_value(printed(s, v)); }},
    {"int", to_integer},
    {"float", to_real},
    {"abs", absolute},
    {"reverse", [](Site s, In v, Args) { return reversed(s, v); }},
    {"safe", [](Site, In v, Args) { return v; }},
    {"indent", indent},
    {"map", map},
    {"unique", unique},
    {"select", [](Site s, In v, Args a) { return choose(s, v, a, false, true); }},
    {"reject", [](Site s, In v, Args a) { return choose(s, v, a, false, false); }},
    {"selectattr", [](Site s, In v, Args a) { return choose(s, v, a, true, true); }},
    {"rejectattr", [](Site s, In v, Args a) { return choose(s, v, a, true, false); }},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const Named& one : kFilters) {
    if (one.name == name) return one.filter;
  }
  return nullptr;
}

}  // namespace copse::chat
