#pragma once
// A request and a response as the routes see them, without the HTTP library.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace copse {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string body;
  std::string request_id;  // the client's X-Request-Id if it is a tame one, else our own
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // besides Content-Type, Content-Length and Connection
};

struct ResponseHead {
  int status = 200;
  bool http_1_0 = false;
  bool keep_alive = true;
  bool chunked = false;
  const std::string* content_type = nullptr;
  std::size_t content_length = 0;  // without chunked
  const HttpHeaders* headers = nullptr;
};

// The status line and the fields, with the empty line that ends them.
std::string serialize_head(const ResponseHead& head);
// One chunk of a chunked body; an empty one ends it.
std::string serialize_chunk(std::string_view bytes);

// The client's id if it has 1 to 64 letters, digits, '.', '_' or '-', else one from `fallback`.
std::string choose_request_id(std::string_view from_client, std::uint64_t fallback);
std::string hex64(std::uint64_t value);

}  // namespace copse
