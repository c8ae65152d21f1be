#pragma once
// The served model's own tokenizer and chat template, read from its folder.
#include <memory>
#include <optional>
#include <string>

#include "gateway/text_model.h"
#include "model/chat_template/chat_template.h"
#include "model/tokenizer/tokenizer.h"

namespace copse {

class ServedTextModel final : public TextModel {
 public:
  // A folder without a chat template serves text completions alone.
  static Result<std::unique_ptr<ServedTextModel>> load(const std::string& dir);

  // Text of clients is text: what spells a special token there is no special token.
  Result<EncodedPrompt> encode_prompt(std::string_view text, std::size_t tokens_max) const override;
  // unsupported: the model has no chat template.
  Result<EncodedPrompt> encode_chat(const std::vector<ChatMessage>& messages,
                                    std::size_t tokens_max) const override;
  // Special tokens are left out of the text.
  std::unique_ptr<TokenDecoder> decoder() const override;

 private:
  ServedTextModel(std::unique_ptr<Tokenizer> tokenizer, std::optional<ChatTemplate> chat);
  std::uint64_t tokens_min(std::size_t bytes) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::size_t longest_token_bytes_ = 1;
  std::optional<ChatTemplate> chat_;
};

}  // namespace copse
