#include "tools/cli/request.h"

#include <cstdio>

namespace copse::cli {

void TokenCollector::on_tokens(const Tokens& tokens) {
  last = clock_.now();
  if (ids.empty()) first = last;
  ids.insert(ids.end(), tokens.tokens.begin(), tokens.tokens.end());
}

void TokenCollector::on_refused(const RequestRefused& refused) {
  const bool invalid =
      refused.kind == RefusalKind::invalid || refused.kind == RefusalKind::too_long;
  error = Error{invalid ? ErrorCode::invalid_argument : ErrorCode::unavailable, refused.at,
                refused.message};
}

void TokenCollector::on_lost(RequestId) {
  error = Error{ErrorCode::unavailable, "engine", "the coordinator was lost"};
}

void Collector::on_tokens(const Tokens& tokens) {
  TokenCollector::on_tokens(tokens);
  for (const TokenId token : tokens.tokens) add(detokenizer_.push(token));
}

void Collector::on_finished(const RequestFinished& end) {
  add(detokenizer_.finish());
  TokenCollector::on_finished(end);
}

void Collector::add(const std::string& piece) {
  text += piece;
  if (!print_) return;
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

Status run_request(EngineSession& session, Submit submit, std::span<const TokenId> prompt,
                   const std::shared_ptr<TokenCollector>& collector) {
  if (!decltype(submit.prompt)::fits(prompt.size())) {
    return Error{ErrorCode::invalid_argument, "--prompt", "is too long"};
  }
  submit.prompt.assign(prompt.begin(), prompt.end());
  COPSE_TRY([[maybe_unused]] const RequestId request,
            session.client().submit(std::move(submit), collector));
  COPSE_RETURN_IF_ERROR(session.run_until([&] { return collector->done(); }));
  if (collector->error.has_value()) return *collector->error;
  if (collector->finished->reason == FinishReason::error) {
    return Error{ErrorCode::internal, "engine", collector->finished->error};
  }
  return {};
}

Result<std::shared_ptr<Collector>> run_request(EngineSession& session, const Tokenizer& tokenizer,
                                               Submit submit, std::span<const TokenId> prompt,
                                               bool print) {
  auto collector = std::make_shared<Collector>(tokenizer, print);
  COPSE_RETURN_IF_ERROR(run_request(session, std::move(submit), prompt, collector));
  return collector;
}

}  // namespace copse::cli
