#include "transport/messages/wire.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <msgpack/pack.hpp>
#include <utility>

namespace copse {
namespace {

// What msgpack::packer writes to.
struct ByteSink {
  std::vector<std::byte>& bytes;
  void write(const char* data, std::size_t size) {
    const auto* first = reinterpret_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  }
};

using Packer = msgpack::packer<ByteSink>;

void tagged_big_endian(std::vector<std::byte>& out, std::uint8_t tag, std::uint64_t bits,
                       int width) {
  out.push_back(std::byte{tag});
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<std::byte>(bits >> shift & 0xff));
  }
}

}  // namespace

void WireWriter::array(std::size_t count) {
  ByteSink sink{bytes_};
  Packer(sink).pack_array(static_cast<std::uint32_t>(count));
}

void WireWriter::unsigned_integer(std::uint64_t value) {
  ByteSink sink{bytes_};
  Packer(sink).pack_uint64(value);
}

void WireWriter::signed_integer(std::int64_t value) {
  ByteSink sink{bytes_};
  Packer(sink).pack_int64(value);
}

void WireWriter::integers(std::span<const std::int32_t> values) {
  const std::size_t before = bytes_.size();
  bytes_.resize(before + 5 * values.size());
  std::byte* at = bytes_.data() + before;
  const auto put = [&at](std::uint32_t tag, std::uint32_t bits, int width) {
    *at++ = static_cast<std::byte>(tag);
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
      *at++ = static_cast<std::byte>(bits >> shift & 0xff);
    }
  };
  for (const std::int32_t value : values) {
    const auto bits = static_cast<std::uint32_t>(value);
    if (value >= 0) {
      if (bits < 0x80) {
        put(bits, 0, 0);
      } else if (bits < 0x100) {
        put(0xcc, bits, 1);
      } else if (bits < 0x10000) {
        put(0xcd, bits, 2);
      } else {
        put(0xce, bits, 4);
      }
    } else if (value >= -0x20) {
      put(bits & 0xff, 0, 0);
    } else if (value >= -0x80) {
      put(0xd0, bits, 1);
    } else if (value >= -0x8000) {
      put(0xd1, bits, 2);
    } else {
      put(0xd2, bits, 4);
    }
  }
  bytes_.resize(static_cast<std::size_t>(at - bytes_.data()));
}

// Not the packer's own: it writes a float of integer value as an integer.
void WireWriter::floating(float value) {
  tagged_big_endian(bytes_, 0xca, std::bit_cast<std::uint32_t>(value), 4);
}

void WireWriter::floating(double value) {
  tagged_big_endian(bytes_, 0xcb, std::bit_cast<std::uint64_t>(value), 8);
}

void WireWriter::boolean(bool value) {
  ByteSink sink{bytes_};
  value ? Packer(sink).pack_true() : Packer(sink).pack_false();
}

void WireWriter::text(const std::string& value) {
  ByteSink sink{bytes_};
  Packer packer(sink);
  packer.pack_str(static_cast<std::uint32_t>(value.size()));
  packer.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
}

std::optional<std::uint64_t> WireReader::big_endian(std::size_t bytes) {
  if (left() < bytes) {
    fail("the message ends early");
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes_[at_ + i]);
  }
  at_ += bytes;
  return value;
}

std::optional<std::uint8_t> WireReader::tag() {
  const auto byte = big_endian(1);
  if (!byte.has_value()) return std::nullopt;
  return static_cast<std::uint8_t>(*byte);
}

std::optional<WireReader::Integer> WireReader::integer() {
  const auto first = tag();
  if (!first.has_value()) return std::nullopt;
  if (*first <= 0x7f) return Integer{.value = *first};
  if (*first >= 0xe0) return Integer{.value = static_cast<std::int8_t>(*first)};
  if (*first < 0xcc || *first > 0xd3) {
    fail("not an integer");
    return std::nullopt;
  }
  const bool is_signed = *first >= 0xd0;
  const std::size_t bytes = std::size_t{1} << (*first - (is_signed ? 0xd0 : 0xcc));
  const auto raw = big_endian(bytes);
  if (!raw.has_value()) return std::nullopt;
  if (is_signed) {
    const int unused = static_cast<int>(64 - 8 * bytes);
    return Integer{.value = static_cast<std::int64_t>(*raw << unused) >> unused};
  }
  if (*raw > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Integer{.huge = *raw, .is_huge = true};
  }
  return Integer{.value = static_cast<std::int64_t>(*raw)};
}

std::size_t WireReader::integers(std::span<std::int32_t> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The spellings that nearly all tokens have; everything else goes the general way.
    const std::byte* at = bytes_.data() + at_;
    const auto byte = [at](int k) { return std::to_integer<std::uint32_t>(at[k]); };
    if (left() >= 5 && byte(0) == 0xce && byte(1) < 0x80) {
      values[i] = static_cast<std::int32_t>(byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4));
      at_ += 5;
    } else if (left() >= 3 && byte(0) == 0xcd) {
      values[i] = static_cast<std::int32_t>(byte(1) << 8 | byte(2));
      at_ += 3;
    } else {
      const auto wide = integer();
      if (!wide.has_value()) return i;
      if (wide->is_huge || !std::in_range<std::int32_t>(wide->value)) {
        fail("an integer is out of range");
        return i;
      }
      values[i] = static_cast<std::int32_t>(wide->value);
    }
  }
  return values.size();
}

bool WireReader::floating(double& value) {
  const auto first = tag();
  if (!first.has_value()) return false;
  if (*first != 0xca && *first != 0xcb) return fail("not a float");
  const auto raw = big_endian(*first == 0xca ? 4 : 8);
  if (!raw.has_value()) return false;
  value = *first == 0xca
              ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(*raw)))
              : std::bit_cast<double>(*raw);
  return std::isfinite(value) ? true : fail("a float is not finite");
}

bool WireReader::floating(float& value) {
  double wide = 0;
  if (!floating(wide)) return false;
  if (std::abs(wide) > static_cast<double>(std::numeric_limits<float>::max())) {
    return fail("a float is out of range");
  }
  value = static_cast<float>(wide);
  return true;
}

bool WireReader::boolean(bool& value) {
  const auto first = tag();
  if (!first.has_value()) return false;
  if (*first != 0xc2 && *first != 0xc3) return fail("not a boolean");
  value = *first == 0xc3;
  return true;
}

bool WireReader::text(std::string& value) {
  const auto first = tag();
  if (!first.has_value()) return false;
  std::size_t size = 0;
  if (*first >= 0xa0 && *first <= 0xbf) {
    size = *first & 0x1fu;
  } else if (*first >= 0xd9 && *first <= 0xdb) {
    const auto raw = big_endian(std::size_t{1} << (*first - 0xd9));
    if (!raw.has_value()) return false;
    size = *raw;
  } else {
    return fail("not a string");
  }
  if (size > limits::message_string_bytes) return fail("a string is too long");
  if (size > left()) return fail("the message ends early");
  value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
  at_ += size;
  return true;
}

std::optional<std::size_t> WireReader::array_count() {
  const auto first = tag();
  if (!first.has_value()) return std::nullopt;
  if (*first >= 0x90 && *first <= 0x9f) return *first & 0x0fu;
  if (*first == 0xdc || *first == 0xdd) {
    const auto raw = big_endian(*first == 0xdc ? 2 : 4);
    if (!raw.has_value()) return std::nullopt;
    return *raw;
  }
  fail("not an array");
  return std::nullopt;
}

std::optional<std::size_t> WireReader::open_array(std::size_t count_max) {
  const auto count = array_count();
  if (!count.has_value()) return std::nullopt;
  if (depth_ >= limits::message_depth) {
    fail("nested too deeply");
  } else if (*count > count_max) {
    fail("too many elements");
  } else if (*count > left()) {
    fail("the message ends early");
  } else {
    ++depth_;
    return count;
  }
  return std::nullopt;
}

bool WireReader::open_array_of(std::size_t count) {
  const auto opened = open_array(count);
  if (!opened.has_value()) return false;
  return *opened == count ? true : fail("fields are missing");
}

bool WireReader::at_end() {
  return left() == 0 ? true : fail("bytes after the message");
}

bool WireReader::fail(const char* message) {
  if (message_ == nullptr) message_ = message;
  return false;
}

bool WireReader::within(const char* name) {
  const bool index_follows = !path_.empty() && path_.front() == '[';
  path_ = path_.empty() || index_follows ? name + path_ : std::string(name) + "." + path_;
  return false;
}

bool WireReader::within(std::size_t index) {
  const std::string inner = path_.empty() ? "" : "." + path_;
  path_ = "[" + std::to_string(index) + "]" + inner;
  return false;
}

Error WireReader::error() const {
  return {ErrorCode::malformed, path_, message_ == nullptr ? "malformed" : message_};
}

}  // namespace copse
