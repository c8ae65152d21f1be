#include "model/tokenizer/json_fields.h"

namespace copse {
namespace {

std::string path(const std::string& key, std::string_view name) {
  return key.empty() ? std::string(name) : key + "." + std::string(name);
}

// The field, or null where there is none.
const Json* find(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<const Json*> container(const Json& object, std::string_view name, const std::string& key,
                              Json::value_t type, std::string_view expected) {
  const Json* value = find(object, name);
  if (value == nullptr || value->type() != type) return json_malformed(path(key, name), expected);
  return value;
}

}  // namespace

Error json_malformed(const std::string& key, std::string_view what) {
  return {ErrorCode::malformed, key, "must be " + std::string(what)};
}

Error json_unsupported(const std::string& key, std::string_view what) {
  return {ErrorCode::unsupported, key, "not supported: " + std::string(what.substr(0, 64))};
}

Result<std::string> json_string(const Json& object, std::string_view name, const std::string& key) {
  const Json* value = find(object, name);
  if (value == nullptr || !value->is_string()) return json_malformed(path(key, name), "a string");
  return value->get<std::string>();
}

Result<bool> json_bool(const Json& object, std::string_view name, const std::string& key,
                       std::optional<bool> otherwise) {
  const Json* value = find(object, name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_boolean()) {
    return json_malformed(path(key, name), "true or false");
  }
  return value->get<bool>();
}

Result<std::int64_t> json_integer(const Json& object, std::string_view name,
                                  const std::string& key) {
  const Json* value = find(object, name);
  if (value == nullptr || !value->is_number_integer()) {
    return json_malformed(path(key, name), "an integer");
  }
  // Above int64 an unsigned number would come out negative; no id is that large anyway.
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) {
    return json_malformed(path(key, name), "a smaller integer");
  }
  return value->get<std::int64_t>();
}

Result<const Json*> json_array(const Json& object, std::string_view name, const std::string& key) {
  return container(object, name, key, Json::value_t::array, "an array");
}

Result<const Json*> json_object(const Json& object, std::string_view name, const std::string& key) {
  return container(object, name, key, Json::value_t::object, "an object");
}

bool json_absent(const Json& object, std::string_view name) {
  return find(object, name) == nullptr;
}

}  // namespace copse
