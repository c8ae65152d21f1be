#include "transport/messages/frame.h"

#include <array>
#include <concepts>
#include <cstring>

#include "base/version.h"
#include "transport/messages/crc32c.h"

namespace copse {
namespace {

constexpr std::array<std::byte, 4> kMagic{std::byte{'C'}, std::byte{'P'}, std::byte{'S'},
                                          std::byte{'E'}};
constexpr std::size_t kChecksumAt = 36;

template <std::unsigned_integral T>
void put(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    at[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <std::unsigned_integral T>
T get(const std::byte* at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  }
  return static_cast<T>(value);
}

std::uint32_t checksum(std::span<const std::byte> frame) {
  return crc32c(frame.first(kChecksumAt), frame.subspan(limits::frame_header_bytes));
}

Error malformed(const char* field, const char* message) {
  return {ErrorCode::malformed, field, message};
}

}  // namespace

std::string build_identity() {
  return "copse " + std::string(kVersion) + " protocol " + std::to_string(kProtocolVersion);
}

std::vector<std::byte> make_frame(const FrameHeader& header, std::span<const std::byte> body) {
  CHECK(body.size() <= limits::frame_body_bytes);
  std::vector<std::byte> bytes(limits::frame_header_bytes + body.size());
  std::byte* at = bytes.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  put<std::uint16_t>(at + 4, kProtocolVersion);
  at[6] = static_cast<std::byte>(header.kind);
  at[7] = static_cast<std::byte>(header.role);
  put<std::uint16_t>(at + 8, header.rank);
  put<std::uint32_t>(at + 12, header.epoch);
  put<std::uint64_t>(at + 16, header.sequence);
  put<std::uint64_t>(at + 24, header.incarnation);
  put<std::uint32_t>(at + 32, static_cast<std::uint32_t>(body.size()));
  if (!body.empty()) std::memcpy(at + limits::frame_header_bytes, body.data(), body.size());
  put<std::uint32_t>(at + kChecksumAt, checksum(bytes));
  return bytes;
}

Result<Frame> parse_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < limits::frame_header_bytes) return malformed("frame", "shorter than a header");
  const std::byte* at = bytes.data();
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0) return malformed("magic", "not ours");
  if (get<std::uint16_t>(at + 4) != kProtocolVersion) {
    return Error{ErrorCode::unsupported, "version", "another protocol version"};
  }
  if (std::to_integer<std::uint8_t>(at[7]) > static_cast<std::uint8_t>(kLastRole)) {
    return malformed("role", "no such role");
  }
  if (get<std::uint16_t>(at + 10) != 0) return malformed("reserved", "must be zero");
  const std::size_t length = get<std::uint32_t>(at + 32);
  if (length > limits::frame_body_bytes || length + limits::frame_header_bytes != bytes.size()) {
    return malformed("length", "is not the body's");
  }
  if (get<std::uint32_t>(at + kChecksumAt) != checksum(bytes)) {
    return malformed("checksum", "does not match");
  }
  const FrameHeader header{.kind = static_cast<Kind>(at[6]),
                           .role = static_cast<Role>(at[7]),
                           .rank = get<std::uint16_t>(at + 8),
                           .epoch = get<std::uint32_t>(at + 12),
                           .sequence = get<std::uint64_t>(at + 16),
                           .incarnation = get<std::uint64_t>(at + 24)};
  return Frame{header, bytes.subspan(limits::frame_header_bytes)};
}

}  // namespace copse
