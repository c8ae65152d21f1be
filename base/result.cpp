#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace copse {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::malformed:
      return "malformed";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_found:
      return "not found";
    case ErrorCode::resource_exhausted:
      return "resource exhausted";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::deadline:
      return "deadline exceeded";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::io:
      return "i/o error";
    case ErrorCode::internal:
      return "internal error";
  }
  return "unknown error";
}

std::string describe(const Error& error) {
  std::string text = error.field.empty() ? error.message : error.field + ": " + error.message;
  return text + " (" + std::string(to_string(error.code)) + ")";
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "CHECK failed: %s at %s:%d\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace copse
