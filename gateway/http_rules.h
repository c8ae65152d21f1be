#pragma once
// What a request's header must satisfy before its body is read. Included by the files that compile
// the HTTP library: the session and the fuzz target, which so judge by the same rules.
#include <utility>  // before Asio: g++ 12

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <string_view>

#include "gateway/http_message.h"
#include "gateway/routes.h"

namespace copse {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Limits that hold before the route is known.
void limit_parser(RequestParser& parser);

// Feeds bytes to a parser whose header is not complete yet; returns how many it took. need_more:
// the rest has not arrived. A field that goes on in a further line is bad_value: what is in front
// of us and what is behind might read it in two ways (RFC 9112, section 5.2).
std::size_t put_header(RequestParser& parser, std::string_view bytes,
                       boost::beast::error_code& error);

struct HeaderVerdict {
  int status = 200;              // else the answer's, and the body is not read
  const Route* route = nullptr;  // with 200
  std::string allow;             // with 204 and 405
  bool expects_continue = false;
};
// Judges a complete header and sets the parser's body limit to the route's.
HeaderVerdict judge_header(RequestParser& parser);

// After the body: false if the chunked body brought trailer fields. `fields` is the count of the
// header's fields, taken before the body was read.
bool has_trailers(const RequestParser& parser, std::size_t fields);
std::size_t count_fields(const RequestParser& parser);

// The status that answers a parse error; 0 if the connection is simply to be closed.
int status_of(const boost::beast::error_code& error);

// The request as the routes see it.
HttpRequest to_request(RequestParser& parser, std::uint64_t request_number);

}  // namespace copse
