// Values as text, the way Python prints them and the way json.dumps does.
#include <charconv>
#include <cmath>

#include "model/chat_template/budget.h"
#include "model/chat_template/failure.h"
#include "model/chat_template/value.h"

namespace copse::chat {
namespace {

constexpr TextOrigin kOurs = TextOrigin::from_template;

// As Python's repr(float): the shortest digits, with an exponent below 1e-4 and from 1e16 on.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[64];
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_escaped(Text& out, const Text& text, std::string_view (*escape)(char, std::string&)) {
  std::size_t plain = 0;
  std::string room;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view escaped = escape(text.bytes()[i], room);
    if (escaped.empty()) continue;
    out.append_part(text, plain, i);
    // What stands for a byte of the request is the request's.
    Text one = text.part(i, i + 1);
    out.append(escaped, one.spans()[0].origin);
    plain = i + 1;
  }
  out.append_part(text, plain, text.size());
}

std::string_view hex_escape(char c, std::string& room, std::string_view prefix) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  room = std::string(prefix) + kDigits[byte >> 4] + kDigits[byte & 15];
  return room;
}

std::string_view json_escape(char c, std::string& room) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  return static_cast<unsigned char>(c) < 0x20 ? hex_escape(c, room, "\\u00") : std::string_view();
}

std::string_view repr_escape(char c, std::string& room) {
  switch (c) {
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F ? hex_escape(c, room, "\\x") : std::string_view();
}

std::string_view repr_escape_quoted(char c, std::string& room) {
  return c == '\'' ? "\\'" : repr_escape(c, room);
}

void append_json_string(Text& out, const Text& text) {
  out.append("\"", kOurs);
  append_escaped(out, text, json_escape);
  out.append("\"", kOurs);
}

struct JsonWriter {
  const JsonStyle& style;
  Budget& budget;
  int source_line;
  Text out;

  void line(int depth) {
    if (style.indent < 0) return;
    out.append("\n" + std::string(static_cast<std::size_t>(style.indent * depth), ' '), kOurs);
  }
  void write(const Value& value, int depth) {
    budget.spend(1, source_line);
    if (const Text* text = as_text(value)) {
      budget.spend_text(*text, source_line);
      return append_json_string(out, *text);
    }
    if (const List* list = as_list(value)) return write_list(*list, depth);
    if (const Dict* dict = as_dict(value)) return write_dict(*dict, depth);
    if (std::holds_alternative<None>(value)) return out.append("null", kOurs);
    if (const auto* flag = std::get_if<bool>(&value)) {
      return out.append(*flag ? "true" : "false", kOurs);
    }
    if (std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value)) {
      return out.append(to_text(value, budget, source_line));
    }
    throw Failure{{ErrorCode::invalid_argument, "chat_template",
                   "tojson of " + std::string(kind_name(value))}};
  }
  void write_list(const List& list, int depth) {
    out.append("[", kOurs);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out.append(style.item_separator);
      line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) line(depth);
    out.append("]", kOurs);
  }
  void write_dict(const Dict& dict, int depth) {
    out.append("{", kOurs);
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out.append(style.item_separator);
      line(depth + 1);
      append_json_string(out, dict.entries[i].first);
      out.append(style.key_separator);
      write(dict.entries[i].second, depth + 1);
    }
    if (!dict.entries.empty()) line(depth);
    out.append("}", kOurs);
  }
};

struct PythonPrinter {
  Budget& budget;
  int source_line;
  Text out;

  void repr(const Value& value) {
    const Text* text = as_text(value);
    if (text == nullptr) return print(value);
    budget.spend_text(*text, source_line);
    const bool single = text->bytes().find('\'') != std::string::npos;
    const bool twice = text->bytes().find('"') != std::string::npos;
    const std::string_view quote = single && !twice ? "\"" : "'";
    out.append(quote, kOurs);
    append_escaped(out, *text, quote == "'" ? repr_escape_quoted : repr_escape);
    out.append(quote, kOurs);
  }
  void print(const Value& value) {
    budget.spend(1, source_line);
    if (const List* list = as_list(value)) return print_list(*list);
    if (const Dict* dict = as_dict(value)) return print_dict(*dict);
    if (const Text* text = as_text(value)) {
      budget.spend_text(*text, source_line);
      return out.append(*text);
    }
    if (is_undefined(value)) return;
    if (std::holds_alternative<None>(value)) return out.append("None", kOurs);
    if (const auto* flag = std::get_if<bool>(&value)) {
      return out.append(*flag ? "True" : "False", kOurs);
    }
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return out.append(std::to_string(*integer), kOurs);
    }
    if (const auto* real = std::get_if<double>(&value)) return out.append(real_text(*real), kOurs);
    throw Failure{{ErrorCode::invalid_argument, "chat_template",
                   std::string(kind_name(value)) + " cannot be printed"}};
  }
  void print_list(const List& list) {
    out.append("[", kOurs);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out.append(", ", kOurs);
      repr(list.items[i]);
    }
    out.append("]", kOurs);
  }
  void print_dict(const Dict& dict) {
    out.append("{", kOurs);
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out.append(", ", kOurs);
      repr(text_value(dict.entries[i].first));
      out.append(": ", kOurs);
      repr(dict.entries[i].second);
    }
    out.append("}", kOurs);
  }
};

}  // namespace

Text to_text(const Value& value, Budget& budget, int line) {
  PythonPrinter printer{budget, line, {}};
  printer.print(value);
  return std::move(printer.out);
}

Text to_json_text(const Value& value, const JsonStyle& style, Budget& budget, int line) {
  JsonWriter writer{style, budget, line, {}};
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace copse::chat
