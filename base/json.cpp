#include "base/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <utility>
#include <vector>

namespace copse {
namespace {

// Builds the document while it is read, and stops at the first thing that is wrong with it.
class BoundedBuilder : public nlohmann::json_sax<Json> {
 public:
  BoundedBuilder(std::string_view field, const JsonBounds& bounds)
      : field_(field), bounds_(bounds) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override {
    return std::isfinite(value) ? add(value) : fail("a number is out of range");
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary data in JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [at, fresh] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!fresh && !bounds_.duplicate_keys) {
      return fail("the key '" + name.substr(0, 64) + "' appears twice");
    }
    value_of_key_ = &at->second;
    return count();
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("not JSON at byte " + std::to_string(position));
  }

  Json take() { return std::move(root_); }
  Error error() const { return {ErrorCode::malformed, std::string(field_), message_}; }

 private:
  bool add(Json value) {
    place(std::move(value));
    return count();
  }
  bool open(Json container) {
    if (open_.size() >= static_cast<std::size_t>(bounds_.depth)) return fail("nested too deeply");
    open_.push_back(place(std::move(container)));
    return count();
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Where the value now stands. Nothing moves it while it is open: a list grows only when its last
  // element is complete, and a map never moves its values.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& list = open_.back()->get_ref<Json::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    *value_of_key_ = std::move(value);
    return value_of_key_;
  }
  bool count() { return ++nodes_ <= bounds_.nodes ? true : fail("too many values"); }
  bool fail(std::string message) {
    if (message_.empty()) message_ = std::move(message);
    return false;
  }

  std::string_view field_;
  const JsonBounds& bounds_;
  Json root_;
  std::vector<Json*> open_;  // containers, outermost first
  Json* value_of_key_ = nullptr;
  std::size_t nodes_ = 0;
  std::string message_;
};

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view field, const JsonBounds& bounds) {
  if (text.size() > bounds.bytes) {
    return Error{ErrorCode::resource_exhausted, std::string(field), "too large"};
  }
  BoundedBuilder builder(field, bounds);
  if (!Json::sax_parse(text, &builder)) return builder.error();
  return builder.take();
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max, FileKind kind) {
  // A pipe without a writer would hold a blocking open, and a device might do anything.
  const bool regular = kind == FileKind::regular;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
  if (fd < 0) return Error{ErrorCode::not_found, base_name(path), "cannot be opened"};
  struct stat found {};
  if (regular && (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))) {
    ::close(fd);
    return Error{ErrorCode::malformed, base_name(path), "is no regular file"};
  }
  std::string text;
  std::vector<char> block(1u << 16);
  ssize_t got = 0;
  while ((got = ::read(fd, block.data(), block.size())) > 0 && text.size() <= bytes_max) {
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  if (got < 0) return Error{ErrorCode::io, base_name(path), "cannot be read"};
  if (text.size() > bytes_max) {
    return Error{ErrorCode::resource_exhausted, base_name(path), "too large"};
  }
  return text;
}

Result<Json> read_json_file(const std::string& path, const JsonBounds& bounds, FileKind kind) {
  COPSE_TRY(const std::string text, read_file(path, bounds.bytes, kind));
  return parse_json(text, base_name(path), bounds);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace copse
