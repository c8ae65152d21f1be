#pragma once
// A string that remembers, byte for byte, whether the template or a request wrote it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/text_span.h"

namespace copse::chat {

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, TextOrigin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(std::string_view bytes, TextOrigin origin);
  void append(const Text& other) { append_part(other, 0, other.size()); }
  // Bytes [begin, end) of the other text, with their origins.
  void append_part(const Text& other, std::size_t begin, std::size_t end);
  Text part(std::size_t begin, std::size_t end) const;
  // The same origins, other bytes; the length must be the same.
  Text with_bytes(std::string bytes) const;

  // Runs of one origin, in order, never empty.
  std::vector<TextSpan> spans() const;
  std::size_t span_count() const { return runs_.size(); }

 private:
  struct Run {
    std::size_t end;  // of the run, in bytes from the start of the text
    TextOrigin origin;
  };
  std::string bytes_;
  std::vector<Run> runs_;
};

// Byte offset of each character of valid UTF-8, and the size behind the last.
std::vector<std::size_t> character_offsets(std::string_view bytes);

// Length in bytes of the white space (as Python's str.isspace has it) that the text begins or
// ends with.
std::size_t leading_space(std::string_view bytes);
std::size_t trailing_space(std::string_view bytes);

}  // namespace copse::chat
