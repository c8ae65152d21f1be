#include "gateway/choice_text.h"

#include <algorithm>
#include <utility>

namespace copse {

ChoiceText::ChoiceText(std::unique_ptr<TokenDecoder> decoder, std::vector<std::string> stops,
                       std::vector<TokenId> end_tokens)
    : decoder_(std::move(decoder)), stops_(std::move(stops)), end_tokens_(std::move(end_tokens)) {}

std::string ChoiceText::decode(TokenId token) {
  return stops_.push(decoder_->push(token));
}

std::string ChoiceText::push(std::span<const TokenId> tokens) {
  std::string sent;
  for (const TokenId token : tokens) {
    if (stopped()) break;
    if (perhaps_end_) sent += decode(*std::exchange(perhaps_end_, std::nullopt));
    if (stopped()) break;
    ++delivered_;
    if (std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end()) {
      perhaps_end_ = token;
    } else {
      sent += decode(token);
    }
  }
  return sent;
}

std::string ChoiceText::finish(bool by_end_token) {
  std::string sent;
  if (stopped()) return sent;
  if (perhaps_end_ && !by_end_token) sent += decode(*perhaps_end_);
  perhaps_end_.reset();
  sent += stops_.push(decoder_->finish());
  sent += stops_.finish();
  return sent;
}

}  // namespace copse
