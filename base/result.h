#pragma once
// What can fail and is nobody's programming error: outside data and operations (files, sockets,
// peers). A programmer's error is a CHECK (base/check.h); user input can never reach one.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace copse {

enum class ErrorCode : std::uint8_t {
  invalid_argument,    // a value that no caller may send; `field` names it
  malformed,           // bytes that are not what their format says
  unsupported,         // well-formed, but a feature that copse lacks
  not_found,           // a file, model, request or key that does not exist
  resource_exhausted,  // a bound of limits.h, a full queue, no memory
  unavailable,         // not ready, draining, or a peer that is gone
  deadline,            // it took longer than it may
  aborted,             // somebody else ended it
  io,                  // the operating system said no
  internal,            // an invariant of ours did not hold for outside reasons
};

std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string field;    // the request field, config key, tensor or file at fault; may be empty
  std::string message;  // one fixed sentence; no paths or internal names in what clients see
};

// "field: message (code)", for logs and the command line.
std::string describe(const Error& error);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

// A Result without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    CHECK(!ok());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace copse

#define COPSE_CONCAT_INNER(a, b) a##b
#define COPSE_CONCAT(a, b) COPSE_CONCAT_INNER(a, b)

// COPSE_TRY(auto config, parse(text));   declares config, or returns the error of parse.
#define COPSE_TRY(declaration, expression) \
  COPSE_TRY_INNER(COPSE_CONCAT(copse_result_, __LINE__), declaration, expression)
#define COPSE_TRY_INNER(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result.ok()) return std::move(result).error();    \
  declaration = std::move(result).value()

// COPSE_RETURN_IF_ERROR(status_expression);
#define COPSE_RETURN_IF_ERROR(expression)                           \
  do {                                                              \
    auto copse_status = (expression);                               \
    if (!copse_status.ok()) return std::move(copse_status).error(); \
  } while (false)
