#include "model/tokenizer/utf8.h"

namespace copse {
namespace {

struct Lead {
  std::size_t length;  // bytes of the character, 0 for an invalid lead byte
  unsigned char low;   // bounds of the second byte
  unsigned char high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // lower would be an overlong form
  if (byte == 0xED) return {3, 0x80, 0x9F};  // higher would be a surrogate
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // higher would be beyond U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Prefix utf8_prefix(std::string_view bytes) {
  if (bytes.empty()) return {};
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.length == 0) return {};
  std::size_t length = 1;
  while (length < lead.length && length < bytes.size()) {
    const auto byte = static_cast<unsigned char>(bytes[length]);
    const unsigned char low = length == 1 ? lead.low : 0x80;
    const unsigned char high = length == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++length;
  }
  return {length, length == lead.length};
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Prefix prefix = utf8_prefix(bytes);
    if (!prefix.complete) return false;
    bytes.remove_prefix(prefix.length);
  }
  return true;
}

std::string Utf8Repair::push(std::string_view bytes) {
  std::string joined = std::move(waiting_);
  joined += bytes;
  waiting_.clear();
  std::string out;
  std::string_view rest = joined;
  while (!rest.empty()) {
    const Utf8Prefix prefix = utf8_prefix(rest);
    if (prefix.complete) {
      out += rest.substr(0, prefix.length);
      rest.remove_prefix(prefix.length);
    } else if (prefix.length == rest.size()) {
      waiting_ = rest;
      break;
    } else {
      out += kReplacementCharacter;
      rest.remove_prefix(prefix.length == 0 ? 1 : prefix.length);
    }
  }
  return out;
}

std::string Utf8Repair::finish() {
  const bool incomplete = !waiting_.empty();
  waiting_.clear();
  return incomplete ? std::string(kReplacementCharacter) : std::string();
}

}  // namespace copse
