#include "base/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <unordered_set>
#include <vector>

namespace copse {
namespace {

// Walks the document once without building it; says what is wrong with it.
class BoundsCheck : public nlohmann::json_sax<Json> {
 public:
  BoundsCheck(std::string_view field, const JsonBounds& bounds) : field_(field), bounds_(bounds) {}

  bool null() override { return node(); }
  bool boolean(bool) override { return node(); }
  bool number_integer(number_integer_t) override { return node(); }
  bool number_unsigned(number_unsigned_t) override { return node(); }
  bool number_float(number_float_t value, const string_t&) override {
    return std::isfinite(value) ? node() : fail("a number is out of range");
  }
  bool string(string_t&) override { return node(); }
  bool binary(binary_t&) override { return fail("binary data in JSON"); }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return open();
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (!bounds_.duplicate_keys && !keys_.back().insert(name).second) {
      return fail("the key '" + name.substr(0, 64) + "' appears twice");
    }
    return node();
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("not JSON at byte " + std::to_string(position));
  }

  Error error() const { return {ErrorCode::malformed, std::string(field_), message_}; }

 private:
  bool node() { return ++nodes_ <= bounds_.nodes ? true : fail("too many values"); }
  bool open() { return ++depth_ <= bounds_.depth ? node() : fail("nested too deeply"); }
  bool fail(std::string message) {
    if (message_.empty()) message_ = std::move(message);
    return false;
  }

  std::string_view field_;
  const JsonBounds& bounds_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::size_t nodes_ = 0;
  int depth_ = 0;
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
  BoundsCheck check(field, bounds);
  if (!Json::sax_parse(text, &check)) return check.error();
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return check.error();
  return value;
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error{ErrorCode::not_found, base_name(path), "cannot be opened"};
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

Result<Json> read_json_file(const std::string& path, const JsonBounds& bounds) {
  COPSE_TRY(const std::string text, read_file(path, bounds.bytes));
  return parse_json(text, base_name(path), bounds);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace copse
