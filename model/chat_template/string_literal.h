#pragma once
// The escapes of a string literal in a template, which are Python's.
#include <string>
#include <string_view>

namespace copse::chat {

// `literal` without its quotes. Unknown escapes stay as they are; surrogates become U+FFFD.
std::string unescape_literal(std::string_view literal);

}  // namespace copse::chat
