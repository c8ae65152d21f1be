#pragma once
// The byte-level alphabet of GPT-2 (Radford et al., 2019): every byte is spelled as one printable
// character, so that a vocabulary in JSON can hold any bytes.
#include <string>
#include <string_view>

namespace copse {

// The character, in UTF-8, that spells the byte.
const std::string& byte_symbol(unsigned char byte);

// The bytes that a vocabulary entry stands for. An entry with a character outside the alphabet
// stands for its own UTF-8, as Hugging Face's ByteLevel decoder has it.
std::string bytes_of_entry(std::string_view entry);

}  // namespace copse
