#include "model/tokenizer/detokenizer.h"

#include "model/tokenizer/tokenizer.h"

namespace copse {

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  return repair_.push(tokenizer_->token_bytes(id));
}

}  // namespace copse
