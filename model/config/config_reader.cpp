#include "model/config/config_reader.h"

#include <cmath>

namespace copse {
namespace {

const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

std::string between(const std::string& min, const std::string& max) {
  return "must be from " + min + " to " + max;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string path, std::string document)
    : object_(&object), path_(std::move(path)), document_(std::move(document)) {
  if (!object.is_object()) {
    object_ = &empty_object();
    fail(ErrorCode::malformed, "", "must be an object");
  }
}

const Json* ConfigReader::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(std::string_view key) const {
  return find(key) != nullptr;
}

std::optional<int> ConfigReader::as_integer(const Json& value, std::string_view key, int min,
                                            int max) {
  // get<double> is exact for every number inside an int's range, and far numbers stay out of it.
  const double number = value.is_number() ? value.get<double>() : 0.0;
  if (!value.is_number() || number != std::floor(number)) {
    fail(ErrorCode::malformed, key, "must be an integer");
    return std::nullopt;
  }
  if (number < min || number > max) {
    fail(ErrorCode::invalid_argument, key, between(std::to_string(min), std::to_string(max)));
    return std::nullopt;
  }
  return static_cast<int>(number);
}

int ConfigReader::integer(std::string_view key, int min, int max, std::optional<int> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::not_found, key, "is missing");
    return fallback.value_or(min);
  }
  return as_integer(*value, key, min, max).value_or(min);
}

double ConfigReader::number(std::string_view key, double min, double max,
                            std::optional<double> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::not_found, key, "is missing");
    return fallback.value_or(min);
  }
  if (!value->is_number()) {
    fail(ErrorCode::malformed, key, "must be a number");
    return min;
  }
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    fail(ErrorCode::invalid_argument, key, between(std::to_string(min), std::to_string(max)));
    return min;
  }
  return number;
}

bool ConfigReader::boolean(std::string_view key, std::optional<bool> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::not_found, key, "is missing");
    return fallback.value_or(false);
  }
  if (!value->is_boolean()) fail(ErrorCode::malformed, key, "must be true or false");
  return value->is_boolean() && value->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::optional<std::string> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::not_found, key, "is missing");
    return fallback.value_or("");
  }
  if (!value->is_string()) fail(ErrorCode::malformed, key, "must be a string");
  return value->is_string() ? value->get<std::string>() : "";
}

std::vector<int> ConfigReader::integers(std::string_view key, int min, int max,
                                        std::size_t count_max) {
  std::vector<int> result;
  const Json* value = find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) {
    if (const auto one = as_integer(*value, key, min, max)) result.push_back(*one);
    return result;
  }
  if (value->size() > count_max) {
    fail(ErrorCode::invalid_argument, key, "has too many entries");
    return result;
  }
  for (const Json& item : *value) {
    if (const auto one = as_integer(item, key, min, max)) result.push_back(*one);
  }
  return result;
}

ConfigReader ConfigReader::object(std::string_view key) {
  const Json* value = find(key);
  return ConfigReader(value == nullptr ? empty_object() : *value, path_ + std::string(key) + ".",
                      document_);
}

void ConfigReader::fail(ErrorCode code, std::string_view key, std::string message) {
  if (error_) return;
  std::string field = path_ + std::string(key);
  if (!field.empty() && field.back() == '.') field.pop_back();
  error_ = Error{code, field.empty() ? document_ : field, std::move(message)};
}

void ConfigReader::absorb(const ConfigReader& part) {
  if (!error_) error_ = part.error_;
}

Status ConfigReader::status() const {
  return error_ ? Status(*error_) : Status();
}

}  // namespace copse
