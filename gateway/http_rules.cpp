#include "gateway/http_rules.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <iterator>

#include "base/limits.h"

namespace copse {
namespace http = boost::beast::http;
namespace {

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

bool acceptable_target(std::string_view method, std::string_view target) {
  if (method == "OPTIONS" && target == "*") return true;
  return target.starts_with('/') && std::all_of(target.begin(), target.end(), [](char c) {
           return static_cast<unsigned char>(c) > 0x20 && c != 0x7f;
         });
}

// 0, or the status of what is wrong whatever the route.
int judge_framing(const RequestParser& parser) {
  const auto& message = parser.get();
  if (message.version() != 10 && message.version() != 11) return 400;
  if (message.version() == 11 && message.count(http::field::host) != 1) return 400;
  const bool lengths = message.count(http::field::content_length) > 0;
  const bool encodings = message.count(http::field::transfer_encoding) > 0;
  if (lengths && encodings) return 400;  // two lengths: request smuggling
  if (message.count(http::field::content_length) > 1) return 400;
  if (message.count(http::field::transfer_encoding) > 1) return 400;
  if (encodings && message.version() == 10) return 400;
  if (encodings && !boost::beast::iequals(message[http::field::transfer_encoding], "chunked")) {
    return 501;
  }
  if (message.count(http::field::trailer) > 0) return 400;
  if (message.count(http::field::upgrade) > 0 && message.method() == http::verb::connect)
    return 400;
  return 0;
}

// The parser takes whole fields, so that a continued line lies within the bytes of one call.
bool has_continued_line(std::string_view taken) {
  return taken.find("\r\n ") != std::string_view::npos ||
         taken.find("\r\n\t") != std::string_view::npos;
}

// Compressed bodies are not read: a small one might become a huge one.
bool is_encoded(const RequestParser& parser) {
  const auto fields = parser.get().equal_range(http::field::content_encoding);
  return std::any_of(fields.first, fields.second, [](const auto& field) {
    return !boost::beast::iequals(field.value(), "identity");
  });
}

}  // namespace

std::size_t put_header(RequestParser& parser, std::string_view bytes,
                       boost::beast::error_code& error) {
  const std::size_t used = parser.put(boost::asio::buffer(bytes), error);
  const bool fine = !error || error == http::error::need_more;
  if (fine && has_continued_line(bytes.substr(0, used))) error = http::error::bad_value;
  return used;
}

void limit_parser(RequestParser& parser) {
  parser.header_limit(static_cast<std::uint32_t>(limits::http_header_bytes));
  parser.body_limit(limits::chat_body_bytes);
}

HeaderVerdict judge_header(RequestParser& parser) {
  const auto& message = parser.get();
  if (const int status = judge_framing(parser); status != 0) return {status, nullptr, "", false};
  const std::string_view method = view(message.method_string());
  const std::string_view target = view(message.target());
  if (!acceptable_target(method, target)) return {400, nullptr, "", false};
  RouteMatch match = match_route(method, target);
  if (match.route == nullptr) return {match.status, nullptr, std::move(match.allow), false};
  if (is_encoded(parser)) return {415, nullptr, "", false};
  parser.body_limit(match.route->body_bytes);
  const auto length = parser.content_length();
  if (length && *length > match.route->body_bytes) return {413, nullptr, "", false};
  bool expects_continue = false;
  if (message.count(http::field::expect) > 0) {
    if (!boost::beast::iequals(message[http::field::expect], "100-continue")) {
      return {417, nullptr, "", false};
    }
    expects_continue = message.version() == 11;
  }
  return {200, match.route, "", expects_continue};
}

std::size_t count_fields(const RequestParser& parser) {
  const auto& message = parser.get();
  return static_cast<std::size_t>(std::distance(message.begin(), message.end()));
}

bool has_trailers(const RequestParser& parser, std::size_t fields) {
  return count_fields(parser) > fields;
}

int status_of(const boost::beast::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  return error.category() == http::make_error_code(http::error::bad_method).category() ? 400 : 0;
}

HttpRequest to_request(RequestParser& parser, std::uint64_t request_number) {
  auto& message = parser.get();
  HttpRequest request;
  request.method = view(message.method_string());
  request.path = path_of(view(message.target()));
  request.request_id = choose_request_id(view(message["X-Request-Id"]), request_number);
  request.body = std::move(message.body());
  return request;
}

}  // namespace copse
