// Fuzzes what clients send as JSON:
//  1. the first byte chooses the request kind, the rest is the body;
//  2. the body is parsed into a validated request, or refused with an error that can be written;
//  3. an accepted request goes on to tokens and a Submit, which the wire must carry unchanged.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "gateway/fakes_for_test.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/parse_request.h"
#include "gateway/prepare.h"

namespace {

using namespace copse;

void check_error(const ApiError& error) {
  CHECK(error.status >= 400 && error.status < 600);
  CHECK(Json::parse(error_body(error)).contains("error"));
}

void check_prepared(const Prepared& prepared) {
  if (const auto* error = std::get_if<ApiError>(&prepared)) return check_error(*error);
  const auto& plan = std::get<GenerationPlan>(prepared);
  CHECK(plan.submit.max_tokens >= 1 && plan.submit.min_tokens <= plan.submit.max_tokens);
  CHECK(plan.choices >= 1 && plan.choices <= static_cast<std::uint32_t>(limits::choices));
  const auto back = decode<Submit>(encode(plan.submit));
  CHECK(back.ok() && *back == plan.submit);
}

GatewayWelcome engine() {
  GatewayWelcome welcome;
  welcome.context_tokens = 4096;
  welcome.vocabulary = 300;
  welcome.end_tokens = {ByteModel::kEnd};
  return welcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const GatewayWelcome welcome = engine();
  static const ByteModel model;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto parsed = parse_chat_request(body);
    if (!parsed.ok()) {
      check_error(api_error(parsed.error()));
    } else {
      check_prepared(prepare_chat(*parsed, model, welcome, 7));
    }
  } else {
    const auto parsed = parse_completion_request(body);
    if (!parsed.ok()) {
      check_error(api_error(parsed.error()));
    } else {
      check_prepared(prepare_completion(*parsed, model, welcome, 7));
    }
  }
  return 0;
}
