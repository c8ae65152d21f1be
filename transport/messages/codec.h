#pragma once
// Messages as MessagePack. A struct is an array with exactly its declared fields in order; a
// Bounded is an array; nothing on the wire names a type. Decoding goes straight into the struct
// with a cursor: a count is checked against the field's bound and against the bytes that are left
// before anything is reserved. Missing, further and trailing data, extensions, maps and non-finite
// floats are refused; an error names the field's path ("slots[2].tokens").
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bounded.h"
#include "base/result.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"
#include "transport/messages/to_worker.h"
#include "transport/messages/wire.h"

namespace copse {
namespace codec {

template <class T>
concept Struct = requires {
  T::fields();
};

template <class T>
struct IsBounded : std::false_type {};
template <class T, std::size_t kMax>
struct IsBounded<Bounded<T, kMax>> : std::true_type {};

// The largest enumerator of each enum that travels; one that is missing here does not compile.
constexpr std::uint64_t last_enumerator(DraftMode) {
  return static_cast<int>(kLastDraftMode);
}
constexpr std::uint64_t last_enumerator(FinishReason) {
  return static_cast<int>(kLastFinishReason);
}
constexpr std::uint64_t last_enumerator(RefusalKind) {
  return static_cast<int>(kLastRefusalKind);
}
constexpr std::uint64_t last_enumerator(GroupState) {
  return static_cast<int>(kLastGroupState);
}

template <class T>
constexpr std::size_t field_count() {
  return std::tuple_size_v<decltype(T::fields())>;
}

template <class T>
void write(WireWriter& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out.boolean(value);
  } else if constexpr (std::is_enum_v<T>) {
    out.unsigned_integer(static_cast<std::uint64_t>(value));
  } else if constexpr (std::floating_point<T>) {
    out.floating(value);
  } else if constexpr (std::unsigned_integral<T>) {
    out.unsigned_integer(value);
  } else if constexpr (std::signed_integral<T>) {
    out.signed_integer(value);
  } else if constexpr (std::same_as<T, std::string>) {
    out.text(value);
  } else if constexpr (IsBounded<T>::value) {
    out.array(value.size());
    if constexpr (std::same_as<typename T::value_type, std::int32_t>) {
      out.integers({value.data(), value.size()});
    } else {
      for (const auto& item : value) write(out, item);
    }
  } else {
    static_assert(Struct<T>, "this type does not travel");
    out.array(field_count<T>());
    std::apply([&](const auto&... f) { (write(out, value.*f.member), ...); }, T::fields());
  }
}

template <class T>
bool read(WireReader& in, T& value);

template <class T>
bool read_integer(WireReader& in, T& value) {
  const auto wide = in.integer();
  if (!wide.has_value()) return false;
  if (!std::in_range<T>(wide->value) && !wide->is_huge)
    return in.fail("an integer is out of range");
  if (wide->is_huge && !std::same_as<T, std::uint64_t>) {
    return in.fail("an integer is out of range");
  }
  value = wide->is_huge ? static_cast<T>(wide->huge) : static_cast<T>(wide->value);
  return true;
}

template <class T>
bool read_enum(WireReader& in, T& value) {
  std::uint64_t number = 0;
  if (!read_integer(in, number)) return false;
  if (number > last_enumerator(T{})) return in.fail("no such enumerator");
  value = static_cast<T>(number);
  return true;
}

template <class T>
bool read_bounded(WireReader& in, T& value) {
  // Each element takes a byte at least, so a count beyond the bytes left is a lie.
  const auto count = in.open_array(T::max_size());
  if (!count.has_value()) return false;
  value.clear();
  if constexpr (std::same_as<typename T::value_type, std::int32_t>) {
    value.resize(*count);
    const std::size_t good = in.integers({value.data(), value.size()});
    if (good < *count) return in.within(good);
    in.close_array();
    return true;
  }
  value.reserve(*count);
  for (std::size_t i = 0; i < *count; ++i) {
    typename T::value_type item{};
    if (!read(in, item)) return in.within(i);
    value.push_back(std::move(item));
  }
  in.close_array();
  return true;
}

template <class T>
bool read_struct(WireReader& in, T& value) {
  if (!in.open_array_of(field_count<T>())) return false;
  const auto one = [&](const auto& f) {
    return read(in, value.*f.member) ? true : in.within(f.name);
  };
  const bool whole = std::apply([&](const auto&... f) { return (one(f) && ...); }, T::fields());
  if (whole) in.close_array();
  return whole;
}

template <class T>
bool read(WireReader& in, T& value) {
  if constexpr (std::same_as<T, bool>) {
    return in.boolean(value);
  } else if constexpr (std::is_enum_v<T>) {
    return read_enum(in, value);
  } else if constexpr (std::floating_point<T>) {
    return in.floating(value);
  } else if constexpr (std::integral<T>) {
    return read_integer(in, value);
  } else if constexpr (std::same_as<T, std::string>) {
    return in.text(value);
  } else if constexpr (IsBounded<T>::value) {
    return read_bounded(in, value);
  } else {
    static_assert(Struct<T>, "this type does not travel");
    return read_struct(in, value);
  }
}

}  // namespace codec

template <class Message>
std::vector<std::byte> encode(const Message& message) {
  WireWriter out;
  codec::write(out, message);
  return std::move(out).take();
}

template <class Message>
Result<Message> decode(std::span<const std::byte> body) {
  WireReader in(body);
  Message message;
  if (codec::read(in, message) && in.at_end()) return message;
  return in.error();
}

}  // namespace copse
