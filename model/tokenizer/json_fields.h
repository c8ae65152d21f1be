#pragma once
// Typed fields of tokenizer.json. Each error names the key from the root: "model.vocab".
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace copse {

Error json_malformed(const std::string& key, std::string_view what);
Error json_unsupported(const std::string& key, std::string_view what);

// `key` is where `object` stands; it may be empty for the root. A missing field is malformed,
// unless a default is given; null counts as missing.
Result<std::string> json_string(const Json& object, std::string_view name, const std::string& key);
Result<bool> json_bool(const Json& object, std::string_view name, const std::string& key,
                       std::optional<bool> otherwise);
Result<std::int64_t> json_integer(const Json& object, std::string_view name,
                                  const std::string& key);
Result<const Json*> json_array(const Json& object, std::string_view name, const std::string& key);
Result<const Json*> json_object(const Json& object, std::string_view name, const std::string& key);

// Missing or null.
bool json_absent(const Json& object, std::string_view name);

}  // namespace copse
