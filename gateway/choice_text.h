#pragma once
// The text of one choice as it grows: tokens through the decoder and the stop matcher. It counts
// the tokens that the client gets, which is what usage and metrics say.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "gateway/stop_matcher.h"
#include "gateway/text_model.h"

namespace copse {

class ChoiceText {
 public:
  // `end_tokens` may end the sequence: the text of one that did is not part of the answer.
  ChoiceText(std::unique_ptr<TokenDecoder> decoder, std::vector<std::string> stops,
             std::vector<TokenId> end_tokens);

  // Text that may be sent now. Tokens behind a matched stop string are not taken.
  std::string push(std::span<const TokenId> tokens);
  // The rest, once the sequence has ended; `by_end_token`: its last token is an end token.
  std::string finish(bool by_end_token);

  // A stop string matched.
  bool stopped() const { return stops_.matched(); }
  const std::string& match() const { return stops_.match(); }  // stopped() must hold
  // Tokens taken, the one that completed a stop string and the end token included.
  std::uint32_t delivered() const { return delivered_; }

 private:
  std::string decode(TokenId token);

  std::unique_ptr<TokenDecoder> decoder_;
  StopMatcher stops_;
  std::vector<TokenId> end_tokens_;
  std::optional<TokenId> perhaps_end_;  // not decoded until a further token shows it was text
  std::uint32_t delivered_ = 0;
};

}  // namespace copse
