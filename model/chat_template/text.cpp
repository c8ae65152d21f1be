#include "model/chat_template/text.h"

#include <algorithm>

#include "base/check.h"

namespace copse::chat {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

bool is_space(std::string_view character) {
  if (character.size() == 1) {
    const char c = character[0];
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F');
  }
  constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80",
                                        "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                                        "\xE2\x81\x9F", "\xE3\x80\x80"};
  if (std::find(std::begin(kWide), std::end(kWide), character) != std::end(kWide)) return true;
  return character.size() == 3 && character >= "\xE2\x80\x80" && character <= "\xE2\x80\x8A";
}

}  // namespace

void Text::append(std::string_view bytes, TextOrigin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::append_part(const Text& other, std::size_t begin, std::size_t end) {
  CHECK(&other != this && begin <= end && end <= other.size());
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](std::size_t at, const Run& one) { return at < one.end; });
  for (std::size_t at = begin; at < end; ++run) {
    const std::size_t stop = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(at, stop - at), run->origin);
    at = stop;
  }
}

Text Text::part(std::size_t begin, std::size_t end) const {
  Text out;
  out.append_part(*this, begin, end);
  return out;
}

Text Text::with_bytes(std::string bytes) const {
  CHECK(bytes.size() == bytes_.size());
  Text out = *this;
  out.bytes_ = std::move(bytes);
  return out;
}

std::vector<TextSpan> Text::spans() const {
  std::vector<TextSpan> spans;
  spans.reserve(runs_.size());
  std::size_t begin = 0;
  for (const Run& run : runs_) {
    spans.push_back({bytes_.substr(begin, run.end - begin), run.origin});
    begin = run.end;
  }
  return spans;
}

std::vector<std::size_t> character_offsets(std::string_view bytes) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (!continues(bytes[at])) offsets.push_back(at);
  }
  offsets.push_back(bytes.size());
  return offsets;
}

std::size_t leading_space(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::size_t end = at + 1;
    while (end < bytes.size() && continues(bytes[end])) ++end;
    if (!is_space(bytes.substr(at, end - at))) break;
    at = end;
  }
  return at;
}

std::size_t trailing_space(std::string_view bytes) {
  std::size_t end = bytes.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && continues(bytes[at])) --at;
    if (!is_space(bytes.substr(at, end - at))) break;
    end = at;
  }
  return bytes.size() - end;
}

}  // namespace copse::chat
