#pragma once
// Reads the fields of one JSON object into bounded values. The first thing wrong is kept and names
// its field; what is read after that is harmless. An absent field and null are the same.
#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace copse {

class Fields {
 public:
  // `prefix` is put before names in errors: "messages[0]." or empty. The object must outlive this.
  explicit Fields(const Json& object, std::string prefix = "");

  const Json* find(const char* name) const;
  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> text(const char* name, std::size_t bytes_max);

  void fail(ErrorCode code, const std::string& name, std::string message);
  void invalid(const std::string& name, std::string message) {
    fail(ErrorCode::invalid_argument, name, std::move(message));
  }
  // A feature of the API that copse lacks, asked for: better refused than ignored.
  void unsupported(const std::string& name);
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }

 private:
  const Json& object_;
  std::string prefix_;
  Status status_;
};

}  // namespace copse
