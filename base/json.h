#pragma once
// JSON from outside: size, depth and duplicate keys are checked while parsing, in one pass, and the
// first fault ends it. Configs, checkpoint headers, tokenizers and HTTP bodies come through here.
#include <cstdint>
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

// A model's folder holds regular files: anything else there (a pipe, a device, a folder) is
// malformed, and is refused without waiting for it.
enum class FileKind : std::uint8_t { regular, any };

// Whole file, bounded; an error's `field` is the file's name without its folder. not_found: it
// cannot be opened.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max,
                              FileKind kind = FileKind::regular);
Result<Json> read_json_file(const std::string& path, const JsonBounds& bounds,
                            FileKind kind = FileKind::regular);

// Text of a value; invalid UTF-8 inside strings becomes U+FFFD instead of an exception.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace copse
