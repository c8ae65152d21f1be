#include "gateway/served_text_model.h"

#include <algorithm>
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

ServedTextModel::ServedTextModel(std::unique_ptr<Tokenizer> tokenizer,
                                 std::optional<ChatTemplate> chat)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    longest_token_bytes_ = std::max(longest_token_bytes_, tokenizer_->token_bytes(id).size());
  }
}

// Every byte of a text is in one of its tokens: these tokenizers change and drop nothing.
std::uint64_t ServedTextModel::tokens_min(std::size_t bytes) const {
  return (bytes + longest_token_bytes_ - 1) / longest_token_bytes_;
}

Result<EncodedPrompt> ServedTextModel::encode_prompt(std::string_view text,
                                                     std::size_t tokens_max) const {
  const std::uint64_t least = tokens_min(text.size());
  if (least > tokens_max) return EncodedPrompt{{}, least};
  COPSE_TRY(std::vector<TokenId> ids,
            tokenizer_->encode(text, {.parse_special = false, .add_bos = true}));
  const std::uint64_t count = ids.size();
  return EncodedPrompt{std::move(ids), count};
}

Result<EncodedPrompt> ServedTextModel::encode_chat(const std::vector<ChatMessage>& messages,
                                                   std::size_t tokens_max) const {
  if (!chat_) return Error{ErrorCode::unsupported, "messages", "The model has no chat template."};
  ChatInputs inputs;
  for (const ChatMessage& message : messages) {
    inputs.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  COPSE_TRY(const RenderedPrompt prompt, chat_->render(inputs));
  std::size_t bytes = 0;
  for (const TextSpan& span : prompt.spans) bytes += span.text.size();
  const std::uint64_t least = tokens_min(bytes);
  if (least > tokens_max) return EncodedPrompt{{}, least};
  // The template writes the begin token itself.
  COPSE_TRY(std::vector<TokenId> ids, tokenizer_->encode(prompt.spans, /*add_bos=*/false));
  const std::uint64_t count = ids.size();
  return EncodedPrompt{std::move(ids), count};
}

std::unique_ptr<TokenDecoder> ServedTextModel::decoder() const {
  return std::make_unique<Decoder>(*tokenizer_);
}

}  // namespace copse
