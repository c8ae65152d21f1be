#include "model/chat_template/operators.h"

#include <cmath>
#include <limits>
#include <optional>

#include "model/chat_template/budget.h"

namespace copse::chat {
namespace {

std::optional<double> real_of(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1.0 : 0.0;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return double(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

std::optional<std::int64_t> integer_of(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  return std::nullopt;
}

[[noreturn]] void fail_overflow(CallSite site) {
  fail_template(ErrorCode::unsupported, site.line, "an integer beyond 64 bits");
}

Value integer_power(CallSite site, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return std::pow(double(base), double(exponent));
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    site.budget.spend(1, site.line);
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow(site);
  }
  return result;
}

Value integer_arithmetic(CallSite site, std::string_view name, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (name == "+" || name == "-" || name == "*") {
    const bool overflow = name == "+"   ? __builtin_add_overflow(a, b, &result)
                          : name == "-" ? __builtin_sub_overflow(a, b, &result)
                                        : __builtin_mul_overflow(a, b, &result);
    if (overflow) fail_overflow(site);
    return result;
  }
  if (name == "**") return integer_power(site, a, b);
  if (b == 0) fail_template(ErrorCode::invalid_argument, site.line, "division by zero");
  if (name == "/") return double(a) / double(b);
  if (b == -1) {
    if (name == "%") return std::int64_t{0};
    if (a == std::numeric_limits<std::int64_t>::min()) fail_overflow(site);
    return -a;
  }
  const std::int64_t rest = a % b;  // Python's has the sign of b
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  if (name == "%") return down ? rest + b : rest;
  return a / b - (down ? 1 : 0);
}

Value real_arithmetic(CallSite site, std::string_view name, double a, double b) {
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "**") return std::pow(a, b);
  if (b == 0) fail_template(ErrorCode::invalid_argument, site.line, "division by zero");
  if (name == "/") return a / b;
  if (name == "//") return std::floor(a / b);
  return a - b * std::floor(a / b);
}

Value joined(CallSite site, const Text& left, const Text& right) {
  site.budget.spend_bytes(left.size() + right.size(), site.line);
  site.budget.spend((left.span_count() + right.span_count()) / 4, site.line);
  Text out = left;
  out.append(right);
  return text_value(std::move(out));
}

Value repeated(CallSite site, const Text& text, std::int64_t count) {
  Text out;
  if (text.empty()) return text_value(std::move(out));
  for (std::int64_t i = 0; i < count; ++i) {
    site.budget.spend_bytes(out.size() + text.size() > limits::template_output_bytes
                                ? limits::template_output_bytes + 1
                                : text.size(),
                            site.line);
    site.budget.spend(text.span_count() / 4, site.line);
    out.append(text);
  }
  return text_value(std::move(out));
}

// What Python makes of the bounds of a slice, for a sequence of `size`.
struct Slice {
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
};

std::int64_t bound(CallSite site, const Value* value, std::int64_t otherwise, std::int64_t low,
                   std::int64_t high, std::int64_t size) {
  if (value == nullptr || std::holds_alternative<None>(*value)) return otherwise;
  const std::optional<std::int64_t> index = integer_of(*value);
  if (!index) fail_type(site, "a slice with", *value);
  const std::int64_t from_start = *index < 0 ? *index + size : *index;
  return std::min(std::max(from_start, low), high);
}

Slice slice_bounds(CallSite site, const Value* start, const Value* stop, const Value* step,
                   std::int64_t size) {
  Slice slice{};
  slice.step = 1;
  if (step != nullptr && !std::holds_alternative<None>(*step)) {
    const std::optional<std::int64_t> given = integer_of(*step);
    if (!given) fail_type(site, "a slice with", *step);
    // Larger steps than the sequence is long reach its first item alone.
    slice.step = std::min(std::max(*given, -size - 1), size + 1);
  }
  if (slice.step == 0) {
    fail_template(ErrorCode::invalid_argument, site.line, "a slice with step 0");
  }
  const bool forward = slice.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? size : size - 1;
  slice.start = bound(site, start, forward ? low : high, low, high, size);
  slice.stop = bound(site, stop, forward ? high : low, low, high, size);
  return slice;
}

std::vector<std::size_t> slice_places(const Slice& slice) {
  std::vector<std::size_t> places;
  for (std::int64_t i = slice.start; slice.step > 0 ? i < slice.stop : i > slice.stop;
       i += slice.step) {
    places.push_back(static_cast<std::size_t>(i));
  }
  return places;
}

}  // namespace

Value apply_binary(CallSite site, std::string_view name, const Value& left, const Value& right) {
  if (name == "~")
    return joined(site, to_text(left, site.budget, site.line),
                  to_text(right, site.budget, site.line));
  const auto integer_left = integer_of(left);
  const auto integer_right = integer_of(right);
  if (integer_left && integer_right) {
    return integer_arithmetic(site, name, *integer_left, *integer_right);
  }
  const auto real_left = real_of(left);
  const auto real_right = real_of(right);
  if (real_left && real_right) return real_arithmetic(site, name, *real_left, *real_right);
  const Text* text_left = as_text(left);
  const Text* text_right = as_text(right);
  if (name == "+" && text_left && text_right) return joined(site, *text_left, *text_right);
  if (name == "*" && text_left && integer_right) return repeated(site, *text_left, *integer_right);
  if (name == "%" && text_left) {
    fail_template(ErrorCode::unsupported, site.line, "formatting of strings with %");
  }
  const List* list_left = as_list(left);
  const List* list_right = as_list(right);
  if (name == "+" && list_left && list_right) {
    std::vector<Value> items = items_of(site, left);
    const std::vector<Value> more = items_of(site, right);
    items.insert(items.end(), more.begin(), more.end());
    return list_value(std::move(items));
  }
  fail_type(site, "'" + std::string(name) + "' of " + std::string(kind_name(left)) + " and",
            is_undefined(left) ? left : right);
}

Value compare_values(CallSite site, std::string_view name, const Value& left, const Value& right) {
  site.budget.spend(1, site.line);
  if (name == "==") return is_equal(left, right, site.budget, site.line);
  if (name == "!=") return !is_equal(left, right, site.budget, site.line);
  if (name == "in") return contains(site, right, left);
  if (name == "not in") return !is_true(contains(site, right, left));
  const auto order = [&](const auto& a, const auto& b) -> Value {
    return name == "<" ? a < b : name == "<=" ? a <= b : name == ">" ? a > b : a >= b;
  };
  const Text* text_left = as_text(left);
  const Text* text_right = as_text(right);
  if (text_left && text_right) {
    site.budget.spend_bytes(text_left->size(), site.line);
    return order(text_left->bytes(), text_right->bytes());
  }
  const auto integer_left = integer_of(left);
  const auto integer_right = integer_of(right);
  if (integer_left && integer_right) return order(*integer_left, *integer_right);
  const auto real_left = real_of(left);
  const auto real_right = real_of(right);
  if (real_left && real_right) return order(*real_left, *real_right);
  fail_type(site, "'" + std::string(name) + "' of " + std::string(kind_name(left)) + " and",
            is_undefined(left) ? left : right);
}

Value apply_sign(CallSite site, std::string_view name, const Value& value) {
  if (const auto integer = integer_of(value)) {
    return integer_arithmetic(site, name, 0, *integer);
  }
  if (const auto real = real_of(value)) return name == "-" ? -*real : *real;
  fail_type(site, "the sign of", value);
}

Value item_of(CallSite site, const Value& value, const Value& index) {
  if (const Text* key = as_text(index)) return member_of(site, value, key->bytes());
  const auto place = integer_of(index);
  const List* list = as_list(value);
  const Text* text = as_text(value);
  if (!place || (list == nullptr && text == nullptr)) {
    if (is_undefined(value)) fail_type(site, "an item of", value);
    return Undefined{"item"};
  }
  if (list != nullptr) {
    const auto size = static_cast<std::int64_t>(list->items.size());
    const std::int64_t at = *place < 0 ? *place + size : *place;
    if (at < 0 || at >= size) return Undefined{"item"};
    return list->items[static_cast<std::size_t>(at)];
  }
  site.budget.spend_bytes(text->size(), site.line);
  const std::vector<std::size_t> offsets = character_offsets(text->bytes());
  const auto size = static_cast<std::int64_t>(offsets.size() - 1);
  const std::int64_t at = *place < 0 ? *place + size : *place;
  if (at < 0 || at >= size) return Undefined{"item"};
  const auto i = static_cast<std::size_t>(at);
  return text_value(text->part(offsets[i], offsets[i + 1]));
}

Value slice_of(CallSite site, const Value& value, const Value* start, const Value* stop,
               const Value* step) {
  if (const List* list = as_list(value)) {
    const Slice slice = slice_bounds(site, start, stop, step, std::ssize(list->items));
    std::vector<Value> items;
    for (const std::size_t place : slice_places(slice)) {
      site.budget.spend(1, site.line);
      items.push_back(list->items[place]);
    }
    return list_value(std::move(items));
  }
  const Text* text = as_text(value);
  if (text == nullptr) fail_type(site, "a slice of", value);
  site.budget.spend_text(*text, site.line);
  const std::vector<std::size_t> offsets = character_offsets(text->bytes());
  const Slice slice = slice_bounds(site, start, stop, step, std::ssize(offsets) - 1);
  if (slice.step == 1) {
    const std::int64_t end = std::max(slice.start, slice.stop);
    return text_value(text->part(offsets[static_cast<std::size_t>(slice.start)],
                                 offsets[static_cast<std::size_t>(end)]));
  }
  Text out;
  for (const std::size_t place : slice_places(slice)) {
    site.budget.spend(1, site.line);
    out.append_part(*text, offsets[place], offsets[place + 1]);
  }
  return text_value(std::move(out));
}

}  // namespace copse::chat
