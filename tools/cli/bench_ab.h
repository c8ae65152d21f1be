#pragma once
// Comparing two configurations honestly: one key differs, and that is checked, not promised.
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "tools/cli/engine_options.h"

namespace copse::cli {

struct Switch {
  std::string key;  // an engine flag without its dashes
  std::string a;
  std::string b;
};

// "KEY=A,B". invalid_argument: it is not that, or A and B are the same.
Result<Switch> parse_switch(const std::string& text);

// `options` with the flag `key` set to `value`, as on the command line ("true" and "false" for one
// without a value). invalid_argument: no such flag, a value that it does not take, or a key that
// changes what is measured rather than how (the models).
Result<EngineOptions> with_switch(EngineOptions options, const std::string& key,
                                  const std::string& value);

// Every engine flag by its first long name, with its value after complete(); null for what the
// device does not heed.
Json configuration(const EngineOptions& options);

// invalid_argument unless the two differ in `key` and nothing else; names what else differs.
Status check_one_difference(const Json& a, const Json& b, const std::string& key);

// The first long name of the flag `key`, which may be a later one; `key` if there is none.
std::string first_name(const std::string& key);

}  // namespace copse::cli
