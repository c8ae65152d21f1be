// Fuzzes one connection's bytes without a socket, by the very rules of the session:
//  1. the first byte says how large the pieces are in which the rest arrives;
//  2. header, verdict and body limit, body and trailers are judged as the session does;
//  3. an accepted request goes through the routes of a whole gateway with an engine in memory;
//  4. the engine answers, so that streams, stop strings and whole answers are written too.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "gateway/fakes_for_test.h"
#include "gateway/gateway.h"
#include "gateway/http_rules.h"

namespace {

using namespace copse;

// Feeds pieces until `done` or the end; false if the bytes are refused or run out.
template <class Done>
bool feed(RequestParser& parser, std::string& buffer, std::string_view& input, std::size_t piece,
          Done done) {
  while (!done()) {
    boost::beast::error_code error;
    const std::size_t used = parser.is_header_done()
                                 ? parser.put(boost::asio::buffer(buffer), error)
                                 : put_header(parser, buffer, error);
    buffer.erase(0, used);
    if (error && error != boost::beast::http::error::need_more) {
      const int status = status_of(error);
      CHECK(status == 0 || (status >= 400 && status < 600));
      return false;
    }
    if (done()) return true;
    if (used > 0 && !error) continue;
    if (input.empty()) return false;
    const std::size_t count = std::min(piece, input.size());
    buffer.append(input.substr(0, count));
    input.remove_prefix(count);
  }
  return true;
}

void run_request(const Route& route, const HttpRequest& request) {
  ManualClock clock;
  SeededRandom random(1);
  const ByteModel model;
  FakeEngine engine(clock);
  Gateway gateway({engine.client, model, clock, random}, "m");
  const auto exchange = std::make_shared<FakeExchange>();
  gateway.handle(route, request, exchange);
  for (const auto& [id, submit] : std::map(engine.sent)) {
    engine.give_ids(id, {submit.prompt[submit.prompt.size() - 1], 'a', 0xC3});
    engine.finish(id, FinishReason::length);
  }
  CHECK(exchange->response.has_value() || exchange->ended);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = 1 + data[0];
  std::string buffer;
  RequestParser parser;
  limit_parser(parser);
  if (!feed(parser, buffer, input, piece, [&] { return parser.is_header_done(); })) return 0;
  const HeaderVerdict verdict = judge_header(parser);
  CHECK((verdict.route != nullptr) == (verdict.status == 200));
  if (verdict.route == nullptr) return 0;
  const std::size_t fields = count_fields(parser);
  parser.eager(true);
  if (!feed(parser, buffer, input, piece, [&] { return parser.is_done(); })) return 0;
  if (has_trailers(parser, fields)) return 0;
  const HttpRequest request = to_request(parser, 1);
  CHECK(request.body.size() <= verdict.route->body_bytes);
  run_request(*verdict.route, request);
  return 0;
}
