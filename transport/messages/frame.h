#pragma once
// The fixed header before every message body. It says who sends what, in which life of the worker
// group and as which number in its stream; it is checked before the body is looked at.
//
//   offset  bytes
//        0      4  magic "CPSE"
//        4      2  protocol version
//        6      1  kind
//        7      1  sender's role
//        8      2  sender's rank
//       10      2  zero
//       12      4  epoch
//       16      8  sequence: 1 for the first frame of a stream, then one more each
//       24      8  sender's incarnation
//       32      4  body length
//       36      4  CRC32C of header bytes 0-35 and body            (all little-endian)
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "transport/messages/kind.h"

namespace copse {

inline constexpr std::uint16_t kProtocolVersion = 1;

// What must be equal for two copse processes to work together: "copse 0.1.0 protocol 1".
std::string build_identity();

enum class Role : std::uint8_t { coordinator = 0, worker = 1, gateway = 2 };
inline constexpr Role kLastRole = Role::gateway;

struct FrameHeader {
  Kind kind{};
  Role role = Role::coordinator;
  std::uint16_t rank = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t incarnation = 0;
  bool operator==(const FrameHeader&) const = default;
};

struct Frame {
  FrameHeader header;
  std::span<const std::byte> body;  // into the bytes that were parsed
};

// body.size() <= limits::frame_body_bytes.
std::vector<std::byte> make_frame(const FrameHeader& header, std::span<const std::byte> body);

// Errors name the header field; the kind's number is not checked here, the receiver knows its
// kinds.
Result<Frame> parse_frame(std::span<const std::byte> bytes);

}  // namespace copse
