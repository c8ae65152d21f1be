#pragma once
// Reads bounded fields of one JSON object and keeps the first error, so that a parser reads as the
// list of its keys. Values read after an error are defaults and must not be used.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace copse {

class ConfigReader {
 public:
  // `path` stands before a key in errors: "text_config." or ""; `document` is named where there is
  // no key to name.
  explicit ConfigReader(const Json& object, std::string path = "",
                        std::string document = "config.json");

  // Present and not null.
  bool has(std::string_view key) const;

  // Missing or null: the fallback, or not_found where there is none. Floats with an integral value
  // are integers (published configs have beta_fast 32.0).
  int integer(std::string_view key, int min, int max, std::optional<int> fallback = {});
  double number(std::string_view key, double min, double max, std::optional<double> fallback = {});
  bool boolean(std::string_view key, std::optional<bool> fallback = {});
  std::string text(std::string_view key, std::optional<std::string> fallback = {});
  // A number or a list of at most `count_max` numbers; missing or null: empty.
  std::vector<int> integers(std::string_view key, int min, int max, std::size_t count_max);
  // The object under a key; missing or null: an empty object.
  ConfigReader object(std::string_view key);
  const Json& json() const { return *object_; }

  // First error of this reader. Errors of a sub-reader are taken with absorb().
  void fail(ErrorCode code, std::string_view key, std::string message);
  void absorb(const ConfigReader& part);
  Status status() const;

 private:
  const Json* find(std::string_view key) const;
  std::optional<int> as_integer(const Json& value, std::string_view key, int min, int max);

  const Json* object_;
  std::string path_;
  std::string document_;
  std::optional<Error> error_;
};

}  // namespace copse
