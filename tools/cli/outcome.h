#pragma once
// How a command ends: with an exit status, or with an error that main prints and the status that
// goes with it.
#include <optional>
#include <utility>

#include "base/result.h"

namespace copse::cli {

// Also of the programs that `copse` starts.
enum ExitStatus : int {
  kSuccess = 0,
  kFailed = 1,         // the machine, the engine or an input said no
  kUsage = 2,          // a flag is wrong
  kBadModel = 3,       // a model's folder is: the next try ends the same way
  kInterrupted = 130,  // ended at once by a signal
};

struct Failure {
  Error error;
  int status = kFailed;
};

class [[nodiscard]] Outcome {
 public:
  Outcome(int status) : status_(status) {}  // NOLINT: implicit
  Outcome(Failure failure)                  // NOLINT: implicit
      : status_(failure.status), error_(std::move(failure.error)) {}
  // A flag's fault if a value is wrong.
  Outcome(Error error)  // NOLINT: implicit
      : Outcome(Failure{error, error.code == ErrorCode::invalid_argument ? kUsage : kFailed}) {}

  bool ok() const { return !error_.has_value(); }
  int status() const { return status_; }
  // For COPSE_RETURN_IF_ERROR; ok() must not hold.
  Failure error() const { return {error_.value(), status_}; }

 private:
  int status_;
  std::optional<Error> error_;
};

// An error of reading a model's folder. What happened to the group of ranks is none of the
// folder's.
inline Failure of_model(Error error) {
  const bool of_group = error.code == ErrorCode::aborted || error.code == ErrorCode::deadline ||
                        error.code == ErrorCode::unavailable;
  return {std::move(error), of_group ? kFailed : kBadModel};
}

}  // namespace copse::cli

// COPSE_TRY_MODEL(auto tokenizer, Tokenizer::load(folder));   as COPSE_TRY, with of_model(error).
#define COPSE_TRY_MODEL(declaration, expression) \
  COPSE_TRY_MODEL_INNER(COPSE_CONCAT(copse_result_, __LINE__), declaration, expression)
#define COPSE_TRY_MODEL_INNER(result, declaration, expression)                \
  auto result = (expression);                                                 \
  if (!result.ok()) return ::copse::cli::of_model(std::move(result).error()); \
  declaration = std::move(result).value()
