#pragma once
// Text of a sequence while it grows. What comes out is valid UTF-8 at every moment, and all of it
// together is what Tokenizer::decode makes of the whole sequence.
#include <string>

#include "base/types.h"
#include "model/tokenizer/utf8.h"

namespace copse {

class Tokenizer;

class Detokenizer {
 public:
  // The tokenizer must outlive it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that became certain. An id outside the vocabulary adds nothing.
  std::string push(TokenId id);

  // The rest: U+FFFD for a character that was never completed.
  std::string finish() { return repair_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Repair repair_;
};

}  // namespace copse
