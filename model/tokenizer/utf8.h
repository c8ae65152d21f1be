#pragma once
// UTF-8 as Unicode 15, table 3-7 defines it (no overlong forms, no surrogates, at most U+10FFFF).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace copse {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The well-formed prefix of what `bytes` begins with: how many bytes of one character are there,
// and whether they are the whole of it. An invalid lead byte has length 0.
struct Utf8Prefix {
  std::size_t length = 0;
  bool complete = false;
};
Utf8Prefix utf8_prefix(std::string_view bytes);

bool is_valid_utf8(std::string_view bytes);

// Makes valid UTF-8 of any bytes, in any portions: each maximal subpart of an ill-formed sequence
// becomes one U+FFFD (Unicode 15, section 3.9; what WHATWG decoders and Rust's lossy one do).
class Utf8Repair {
 public:
  // Whole characters only; the beginning of one waits for its rest.
  std::string push(std::string_view bytes);
  // What still waits, as U+FFFD. The object can be used again.
  std::string finish();

 private:
  std::string waiting_;  // at most 3 bytes
};

}  // namespace copse
