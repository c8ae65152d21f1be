#pragma once
// MessagePack one value at a time: what the codec (codec.h) is made of.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace copse {

class WireWriter {
 public:
  void array(std::size_t count);
  void unsigned_integer(std::uint64_t value);
  void signed_integer(std::int64_t value);
  // The elements of an array of tokens or pages, as signed_integer writes each: a prompt has a
  // quarter million of them.
  void integers(std::span<const std::int32_t> values);
  void floating(float value);
  void floating(double value);
  void boolean(bool value);
  void text(const std::string& value);
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// A cursor over bytes that nobody vouches for. Each reader returns false or nothing at the first
// wrong byte and stays there; the error then tells what was wrong and where.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Any MessagePack integer. Values above the largest int64 come as `huge`.
  struct Integer {
    std::int64_t value = 0;
    std::uint64_t huge = 0;
    bool is_huge = false;
  };
  std::optional<Integer> integer();
  // As many integers as `values` has room for. The number that were read: fewer after an error.
  std::size_t integers(std::span<std::int32_t> values);
  bool floating(float& value);  // float32 or float64 on the wire, finite, in range
  bool floating(double& value);
  bool boolean(bool& value);
  bool text(std::string& value);  // at most limits::message_string_bytes

  // Enters an array of at most count_max elements; close_array leaves it.
  std::optional<std::size_t> open_array(std::size_t count_max);
  bool open_array_of(std::size_t count);
  void close_array() { --depth_; }

  // Nothing is left; trailing bytes are an error.
  bool at_end();

  // Always false, so that a caller can return it. The first complaint stays.
  bool fail(const char* message);
  // Extends the path of the error outwards; always false.
  bool within(const char* name);
  bool within(std::size_t index);
  Error error() const;

 private:
  std::optional<std::uint64_t> big_endian(std::size_t bytes);
  std::optional<std::uint8_t> tag();
  std::optional<std::size_t> array_count();
  std::size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string path_;
  const char* message_ = nullptr;
};

}  // namespace copse
