#pragma once
// From text to tokens and back, as the served model does it.
#include <cstddef>
#include <cstdint>
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

// The tokens of a prompt, or why there are none.
struct EncodedPrompt {
  std::vector<TokenId> ids;  // empty if the prompt cannot fit, and was not encoded for that reason
  std::uint64_t tokens_min = 0;  // ids.size(), or what such a prompt has at least
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  // A prompt as it is, behind the begin token if the model wants one. A text that has more than
  // `tokens_max` tokens by its length alone is not encoded. Called from any thread.
  virtual Result<EncodedPrompt> encode_prompt(std::string_view text,
                                              std::size_t tokens_max) const = 0;
  // A conversation through the model's template, ready for the assistant's answer; as above.
  virtual Result<EncodedPrompt> encode_chat(const std::vector<ChatMessage>& messages,
                                            std::size_t tokens_max) const = 0;
  virtual std::unique_ptr<TokenDecoder> decoder() const = 0;
};

}  // namespace copse
