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

// Tokens alone, and when they came.
class TokenCollector : public StreamHandler {
 public:
  void on_tokens(const Tokens& tokens) override;
  void on_finished(const RequestFinished& end) override { finished = end; }
  void on_refused(const RequestRefused& refused) override;
  void on_lost(RequestId request) override;
  bool done() const { return finished.has_value() || error.has_value(); }

  std::vector<TokenId> ids;
  std::optional<RequestFinished> finished;
  std::optional<Error> error;
  Instant first{};  // token message
  Instant last{};

 private:
  SteadyClock clock_;
};

// Their text as well.
class Collector final : public TokenCollector {
 public:
  // Prints text to standard output as it comes, if `print`.
  Collector(const Tokenizer& tokenizer, bool print)
      : detokenizer_(tokenizer, /*skip_special=*/true), print_(print) {}

  void on_tokens(const Tokens& tokens) override;
  void on_finished(const RequestFinished& end) override;

  std::string text;

 private:
  void add(const std::string& piece);
  Detokenizer detokenizer_;
  bool print_;
};

// Runs the session until the request has ended well; `finished` is there then.
Status run_request(EngineSession& session, Submit submit, std::span<const TokenId> prompt,
                   const std::shared_ptr<TokenCollector>& collector);
Result<std::shared_ptr<Collector>> run_request(EngineSession& session, const Tokenizer& tokenizer,
                                               Submit submit, std::span<const TokenId> prompt,
                                               bool print);

}  // namespace copse::cli
