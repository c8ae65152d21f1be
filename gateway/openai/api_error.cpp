#include "gateway/openai/api_error.h"

#include <utility>

#include "base/json.h"

namespace copse {
namespace {

constexpr const char* kInvalid = "invalid_request_error";

ApiError invalid(std::string message, std::string param, std::string code) {
  return {400, std::move(message), kInvalid, std::move(param), std::move(code), 0, {}};
}

}  // namespace

ApiError api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::malformed:
      return invalid("The body is not acceptable JSON: " + error.message + ".", "", "invalid_json");
    case ErrorCode::not_found: {
      ApiError unknown = invalid(error.message, error.field, "model_not_found");
      unknown.status = 404;
      return unknown;
    }
    case ErrorCode::unsupported:
      return invalid(error.message, error.field, "unsupported_parameter");
    case ErrorCode::invalid_argument:
      return invalid(error.message, error.field, "invalid_value");
    case ErrorCode::resource_exhausted:
      if (!error.field.empty()) return invalid(error.message, error.field, "too_large");
      return {429,
              "The server is busy: try again later.",
              "rate_limit_error",
              "",
              "rate_limit_exceeded",
              1,
              {}};
    case ErrorCode::unavailable:
      return unavailable_error("The engine is not available.");
    default:
      return failed_error();
  }
}

ApiError api_error(const RequestRefused& refused) {
  switch (refused.kind) {
    case RefusalKind::invalid:
      return invalid("The engine refused a value of this request.", refused.at, "invalid_value");
    case RefusalKind::too_long: {
      ApiError error = context_error(0, 0, refused.at.empty() ? "prompt" : refused.at);
      error.overflow.reset();
      error.message = "The request needs more tokens than the engine can hold.";
      return error;
    }
    case RefusalKind::queue_full:
      return {429,
              "Too many requests are waiting: try again later.",
              "rate_limit_error",
              "",
              "rate_limit_exceeded",
              std::max(refused.retry_after_s, 1u),
              {}};
    case RefusalKind::unavailable: {
      ApiError error = unavailable_error("The engine is not available.");
      error.retry_after_s = std::max(refused.retry_after_s, 1u);
      return error;
    }
  }
  return failed_error();
}

ApiError context_error(std::uint64_t prompt_tokens, std::uint64_t context_tokens, std::string param,
                       TokenCount count) {
  const char* about = count == TokenCount::exact ? "" : "at least ";
  return {400,
          std::string("The prompt has ") + about + std::to_string(prompt_tokens) +
              " tokens; the context holds " + std::to_string(context_tokens) +
              ", the answer included.",
          "exceed_context_size_error",
          std::move(param),
          "context_length_exceeded",
          0,
          ContextOverflow{prompt_tokens, context_tokens}};
}

ApiError unavailable_error(std::string message) {
  return {503, std::move(message), "service_unavailable_error", "", "engine_unavailable", 1, {}};
}

ApiError failed_error() {
  return {500, "The engine failed on this request.", "server_error", "", "engine_error", 0, {}};
}

ApiError http_error(int status) {
  const auto plain = [status](const char* message, const char* code) {
    return ApiError{status, message, kInvalid, "", code, 0, {}};
  };
  switch (status) {
    case 404:
      return plain("There is nothing at this path.", "not_found");
    case 405:
      return plain("This path does not take this method.", "method_not_allowed");
    case 408:
      return plain("The request took too long to arrive.", "request_timeout");
    case 411:
      return plain("The request needs a Content-Length.", "length_required");
    case 413:
      return plain("The body is too large.", "body_too_large");
    case 415:
      return plain("The body must come without a content encoding.", "unsupported_encoding");
    case 417:
      return plain("This expectation cannot be met.", "expectation_failed");
    case 431:
      return plain("The header is too large.", "header_too_large");
    case 501:
      return plain("This transfer encoding is not supported.", "not_implemented");
    default:
      return plain("This is not an acceptable HTTP request.", "bad_request");
  }
}

std::string error_body(const ApiError& error) {
  Json inner{{"message", error.message},
             {"type", error.type},
             {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
             {"code", error.code}};
  if (error.overflow) {
    inner["n_prompt_tokens"] = error.overflow->prompt_tokens;
    inner["n_ctx"] = error.overflow->context_tokens;
  }
  return dump_json(Json{{"error", std::move(inner)}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{error.status, "application/json", error_body(error), {}};
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

}  // namespace copse
