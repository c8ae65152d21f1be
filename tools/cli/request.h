#pragma once
// One request of a command: submitted, collected, printed as it comes.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "tools/cli/engine_session.h"

namespace copse::cli {

class Collector final : public StreamHandler {
 public:
  // Prints text to standard output as it comes, if `print`.
  Collector(const Tokenizer& tokenizer, bool print)
      : detokenizer_(tokenizer, /*skip_special=*/true), print_(print) {}

  void on_tokens(const Tokens& tokens) override;
  void on_finished(const RequestFinished& end) override;
  void on_refused(const RequestRefused& refused) override;
  void on_lost(RequestId request) override;
  bool done() const { return finished.has_value() || error.has_value(); }

  std::vector<TokenId> ids;
  std::string text;
  std::optional<RequestFinished> finished;
  std::optional<Error> error;
  Instant first{};  // token message
  Instant last{};

 private:
  void add(const std::string& piece);
  SteadyClock clock_;
  Detokenizer detokenizer_;
  bool print_;
};

// Runs the session until the request has ended well; `finished` is there then.
Result<std::shared_ptr<Collector>> run_request(EngineSession& session, const Tokenizer& tokenizer,
                                               Submit submit, std::span<const TokenId> prompt,
                                               bool print);

}  // namespace copse::cli
