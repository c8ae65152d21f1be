#include "model/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "model/tokenizer/utf8.h"

namespace copse {
namespace {

struct Alphabet {
  std::array<std::string, 256> symbols;
  std::array<std::int16_t, 512> bytes;  // by code point, -1: not of the alphabet
};

bool spells_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int point = spells_itself(byte) ? byte : next++;
    std::string& symbol = alphabet.symbols[static_cast<std::size_t>(byte)];
    if (point < 0x80) {
      symbol = static_cast<char>(point);
    } else {
      symbol = {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
    }
    alphabet.bytes[static_cast<std::size_t>(point)] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet table = make_alphabet();
  return table;
}

}  // namespace

const std::string& byte_symbol(unsigned char byte) {
  return alphabet().symbols[byte];
}

std::string bytes_of_entry(std::string_view entry) {
  std::string bytes;
  for (std::string_view rest = entry; !rest.empty();) {
    const Utf8Prefix prefix = utf8_prefix(rest);
    if (!prefix.complete || prefix.length > 2) return std::string(entry);
    const auto lead = static_cast<unsigned char>(rest[0]);
    const std::size_t point = prefix.length == 1
                                  ? lead
                                  : static_cast<std::size_t>((lead & 0x1F) << 6) |
                                        (static_cast<unsigned char>(rest[1]) & 0x3Fu);
    if (point >= alphabet().bytes.size() || alphabet().bytes[point] < 0) return std::string(entry);
    bytes += static_cast<char>(alphabet().bytes[point]);
    rest.remove_prefix(prefix.length);
  }
  return bytes;
}

}  // namespace copse
