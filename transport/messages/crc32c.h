#pragma once
// CRC-32C (Castagnoli, RFC 3720 appendix B.4): finds flipped bits in frames, not forgeries.
#include <cstddef>
#include <cstdint>
#include <span>

namespace copse {

// The checksum of `first` followed by `second`.
std::uint32_t crc32c(std::span<const std::byte> first, std::span<const std::byte> second = {});

// The same without the processor's instruction: what tests hold the fast one against.
std::uint32_t crc32c_portable(std::span<const std::byte> first,
                              std::span<const std::byte> second = {});

}  // namespace copse
