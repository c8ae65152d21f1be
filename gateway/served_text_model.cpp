#include "gateway/served_text_model.h"

#include <utility>

#include "model/tokenizer/detokenizer.h"

namespace copse {
namespace {

class Decoder final : public TokenDecoder {
 public:
  explicit Decoder(const Tokenizer& tokenizer) : text_(tokenizer, /*skip_special=*/true) {}
  std::string push(TokenId token) override { return text_.push(token); }
  std::string finish() override { return text_.finish(); }

 private:
  Detokenizer text_;
};

}  // namespace

Result<std::unique_ptr<ServedTextModel>> ServedTextModel::load(const std::string& dir) {
  COPSE_TRY(auto tokenizer, Tokenizer::load(dir));
  std::optional<ChatTemplate> chat;
  Result<ChatTemplate> loaded = load_chat_template(dir);
  if (loaded.ok()) {
    chat = std::move(loaded).value();
  } else if (loaded.error().code != ErrorCode::not_found) {
    return std::move(loaded).error();
  }
  return std::unique_ptr<ServedTextModel>(
      new ServedTextModel(std::move(tokenizer), std::move(chat)));
}

Result<std::vector<TokenId>> ServedTextModel::encode_prompt(std::string_view text) const {
  return tokenizer_->encode(text, {.parse_special = false, .add_bos = true});
}

Result<std::vector<TokenId>> ServedTextModel::encode_chat(
    const std::vector<ChatMessage>& messages) const {
  if (!chat_) return Error{ErrorCode::unsupported, "messages", "The model has no chat template."};
  ChatInputs inputs;
  for (const ChatMessage& message : messages) {
    inputs.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  COPSE_TRY(const RenderedPrompt prompt, chat_->render(inputs));
  // The template writes the begin token itself.
  return tokenizer_->encode(prompt.spans, /*add_bos=*/false);
}

std::unique_ptr<TokenDecoder> ServedTextModel::decoder() const {
  return std::make_unique<Decoder>(*tokenizer_);
}

}  // namespace copse
