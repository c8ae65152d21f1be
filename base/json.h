#pragma once
// JSON from outside: size, depth and duplicate keys are checked while parsing, before anything is
// kept. Configs, checkpoint headers, tokenizers and HTTP bodies all come through here.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/result.h"

namespace copse {

using Json = nlohmann::json;

struct JsonBounds {
  std::size_t bytes = limits::config_bytes;
  int depth = limits::json_depth;
  std::size_t nodes = 1u << 20;  // values and keys together
  bool duplicate_keys = false;   // true: the last one wins, as in HTTP bodies of some clients
};

// `field` names the document in errors ("body", "config.json"). Non-finite numbers, invalid UTF-8
// and trailing bytes are malformed.
Result<Json> parse_json(std::string_view text, std::string_view field, const JsonBounds& bounds);

// Whole file, bounded; `field` is the file's name without its folder.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);
Result<Json> read_json_file(const std::string& path, const JsonBounds& bounds);

// Text of a value; invalid UTF-8 inside strings becomes U+FFFD instead of an exception.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace copse
