#include "gateway/http_message.h"

#include <algorithm>
#include <cstdint>

namespace copse {
namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

bool tame(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string serialize_head(const ResponseHead& head) {
  std::string text = head.http_1_0 ? "HTTP/1.0 " : "HTTP/1.1 ";
  text += std::to_string(head.status);
  text += ' ';
  text += reason_phrase(head.status);
  text += "\r\n";
  const auto add = [&text](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  if (head.content_type != nullptr && !head.content_type->empty()) {
    add("Content-Type", *head.content_type);
  }
  if (head.chunked) {
    add("Transfer-Encoding", "chunked");
  } else if (head.status != 204 && (head.keep_alive || head.content_length > 0)) {
    add("Content-Length", std::to_string(head.content_length));
  }
  if (!head.keep_alive) {
    add("Connection", "close");
  } else if (head.http_1_0) {
    add("Connection", "keep-alive");
  }
  if (head.headers != nullptr) {
    for (const auto& [name, value] : *head.headers) add(name, value);
  }
  text += "\r\n";
  return text;
}

std::string serialize_chunk(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string size;
  for (std::size_t rest = bytes.size(); rest > 0; rest >>= 4) size += kDigits[rest & 15u];
  if (size.empty()) size = "0";
  std::reverse(size.begin(), size.end());
  std::string text = std::move(size);
  text.append("\r\n").append(bytes).append("\r\n");
  return text;
}

std::string hex64(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[static_cast<std::size_t>(i)] = kDigits[value & 15u];
  return text;
}

std::string choose_request_id(std::string_view from_client, std::uint64_t fallback) {
  if (!from_client.empty() && from_client.size() <= 64 &&
      std::all_of(from_client.begin(), from_client.end(), tame)) {
    return std::string(from_client);
  }
  return "req-" + hex64(fallback);
}

}  // namespace copse
