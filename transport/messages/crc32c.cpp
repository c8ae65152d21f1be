#include "transport/messages/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace copse {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t update_portable(std::uint32_t crc, Bytes bytes) {
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)
// A prompt of a quarter million tokens is a megabyte: the table would hold the coordinator's loop
// for milliseconds, the instruction for a tenth of one.
__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t crc, Bytes bytes) {
  std::uint64_t wide = crc;
  while (bytes.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(sizeof word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (const std::byte byte : bytes)
    narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(byte));
  return narrow;
}

std::uint32_t update(std::uint32_t crc, Bytes bytes) {
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  return fast ? update_sse42(crc, bytes) : update_portable(crc, bytes);
}
#else
std::uint32_t update(std::uint32_t crc, Bytes bytes) {
  return update_portable(crc, bytes);
}
#endif

}  // namespace

std::uint32_t crc32c(Bytes first, Bytes second) {
  return ~update(update(~0u, first), second);
}

std::uint32_t crc32c_portable(Bytes first, Bytes second) {
  return ~update_portable(update_portable(~0u, first), second);
}

}  // namespace copse
