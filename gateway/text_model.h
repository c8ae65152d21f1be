#pragma once
// From text to tokens and back, as the served model does it.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "gateway/openai/request.h"

namespace copse {

// Decodes one sequence token by token. What it returns is valid UTF-8 and never ends within a
// character; the pieces and finish() together are the text of the whole sequence.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual std::string push(TokenId token) = 0;
  // What was held back: an incomplete character becomes U+FFFD.
  virtual std::string finish() = 0;
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  // A prompt as it is, behind the begin token if the model wants one.
  virtual Result<std::vector<TokenId>> encode_prompt(std::string_view text) const = 0;
  // A conversation through the model's template, ready for the assistant's answer.
  virtual Result<std::vector<TokenId>> encode_chat(
      const std::vector<ChatMessage>& messages) const = 0;
  virtual std::unique_ptr<TokenDecoder> decoder() const = 0;
};

}  // namespace copse
