#include "gateway/openai/fields.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace copse {

Fields::Fields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const Json* Fields::find(const char* name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void Fields::fail(ErrorCode code, const std::string& name, std::string message) {
  if (failed()) return;
  const std::string field = prefix_ + name;
  status_ = Error{code, field, field + " " + std::move(message) + "."};
}

void Fields::unsupported(const std::string& name) {
  fail(ErrorCode::unsupported, name, "is not supported by this server");
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t least,
                                            std::int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) {
    // An unsigned number beyond int64 is beyond every bound here.
    const bool fits = !value->is_number_unsigned() ||
                      value->get<std::uint64_t>() <=
                          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (fits) {
      const auto number = value->get<std::int64_t>();
      if (number >= least && number <= most) return number;
    }
  }
  invalid(name, fmt::format("must be an integer between {} and {}", least, most));
  return std::nullopt;
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= least && number <= most) return number;
  }
  invalid(name, fmt::format("must be a number between {} and {}", least, most));
  return std::nullopt;
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  invalid(name, "must be true or false");
  return std::nullopt;
}

std::optional<std::string> Fields::text(const char* name, std::size_t bytes_max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() && value->get_ref<const std::string&>().size() <= bytes_max) {
    return value->get<std::string>();
  }
  invalid(name, fmt::format("must be a string of at most {} bytes", bytes_max));
  return std::nullopt;
}

}  // namespace copse
