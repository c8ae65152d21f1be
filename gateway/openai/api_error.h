#pragma once
// Errors as OpenAI's clients expect them: {"error":{"message","type","param","code"}}. A message is
// a fixed sentence: no paths, no internal names, nothing of the prompt.
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "gateway/http_message.h"
#include "transport/messages/to_gateway.h"

namespace copse {

struct ContextOverflow {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t context_tokens = 0;
};

struct ApiError {
  int status = 400;
  std::string message;
  std::string type;   // invalid_request_error, …
  std::string param;  // the request field at fault; empty: null
  std::string code;
  std::uint32_t retry_after_s = 0;  // 0: no Retry-After
  std::optional<ContextOverflow> overflow;
};

// What a parser or check found wrong with the request.
ApiError api_error(const Error& error);
// What the coordinator refused. Its texts are for logs: clients get a sentence per kind.
ApiError api_error(const RequestRefused& refused);
enum class TokenCount : std::uint8_t { exact, at_least };
ApiError context_error(std::uint64_t prompt_tokens, std::uint64_t context_tokens, std::string param,
                       TokenCount count = TokenCount::exact);
ApiError unavailable_error(std::string message);
ApiError http_error(int status);  // 404, 405, 408, 411, 413, 415, 417, 431, 501 and plain 400
ApiError failed_error();          // the engine could not go on with this request

std::string error_body(const ApiError& error);  // the JSON object, also for a stream's last event
HttpResponse error_response(const ApiError& error);

}  // namespace copse
