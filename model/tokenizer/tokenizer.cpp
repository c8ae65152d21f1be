#include "model/tokenizer/tokenizer.h"

#include "base/json.h"
#include "base/limits.h"
#include "model/tokenizer/tokenizer_file.h"
#include "model/tokenizer/utf8.h"

namespace copse {

struct Tokenizer::Parts {
  struct Token {
    std::string bytes;
    bool known = false;
    bool special = false;
  };

  explicit Parts(TokenizerFile read) : file(std::move(read)) {
    for (const Bpe::Entry& entry : file.bpe.entries()) {
      tokens.push_back({entry.bytes, entry.known, false});
    }
    for (const AddedToken& added : file.added.tokens()) {
      const auto at = static_cast<std::size_t>(added.id);
      if (at >= tokens.size()) tokens.resize(at + 1);
      tokens[at] = {added.content, true, added.special};
    }
  }

  const Token* find(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return nullptr;
    const Token& token = tokens[static_cast<std::size_t>(id)];
    return token.known ? &token : nullptr;
  }

  // Words of the text between two added tokens.
  Status encode_words(std::string_view text, std::vector<TokenId>& ids) const {
    COPSE_TRY(const std::vector<ByteRange> words, file.pre_tokenizer.split(text));
    for (const ByteRange& word : words) {
      file.bpe.encode(text.substr(word.begin, word.end - word.begin), ids);
    }
    return {};
  }

  Result<std::vector<TokenId>> encode(std::string_view text, const std::vector<ByteRange>& allowed,
                                      bool add_bos) const {
    if (!is_valid_utf8(text)) return Error{ErrorCode::malformed, "text", "not valid UTF-8"};
    std::vector<TokenId> ids;
    if (add_bos) ids = file.begin_ids;
    std::size_t at = 0;
    for (const AddedMatch& match : file.added.find(text, allowed)) {
      COPSE_RETURN_IF_ERROR(encode_words(text.substr(at, match.range.begin - at), ids));
      ids.push_back(match.id);
      at = match.range.end;
    }
    COPSE_RETURN_IF_ERROR(encode_words(text.substr(at), ids));
    return ids;
  }

  TokenizerFile file;
  std::vector<Token> tokens;  // by id
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& dir) {
  COPSE_TRY(const std::string tokenizer_json,
            read_file(dir + "/tokenizer.json", limits::tokenizer_bytes));
  Result<std::string> config = read_file(dir + "/tokenizer_config.json", limits::config_bytes);
  if (!config && config.error().code != ErrorCode::not_found) return std::move(config).error();
  return parse(tokenizer_json, config ? *config : std::string());
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::parse(std::string_view tokenizer_json,
                                                    std::string_view config_json) {
  COPSE_TRY(TokenizerFile file, parse_tokenizer_file(tokenizer_json, config_json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Parts>(std::move(file))));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > limits::prompt_bytes) {
    return Error{ErrorCode::resource_exhausted, "text", "too long"};
  }
  std::vector<ByteRange> allowed;
  if (options.parse_special) allowed.push_back({0, text.size()});
  return parts_->encode(text, allowed, options.add_bos);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const TextSpan> spans,
                                               bool add_bos) const {
  std::string text;
  std::vector<ByteRange> allowed;
  for (const TextSpan& span : spans) {
    const std::size_t begin = text.size();
    if (span.text.size() > limits::template_output_bytes - begin) {
      return Error{ErrorCode::resource_exhausted, "text", "too long"};
    }
    text += span.text;
    if (span.origin != TextOrigin::from_template) continue;
    if (!allowed.empty() && allowed.back().end == begin) {
      allowed.back().end = text.size();
    } else {
      allowed.push_back({begin, text.size()});
    }
  }
  return parts_->encode(text, allowed, add_bos);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string bytes;
  for (const TokenId id : ids) {
    const Parts::Token* token = parts_->find(id);
    if (token == nullptr || (options.skip_special && token->special)) continue;
    bytes += token->bytes;
  }
  Utf8Repair repair;
  std::string text = repair.push(bytes);
  return text + repair.finish();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const Parts::Token* token = parts_->find(id);
  return token == nullptr ? std::string_view() : std::string_view(token->bytes);
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(parts_->tokens.size());
}

bool Tokenizer::contains(TokenId id) const {
  return parts_->find(id) != nullptr;
}

bool Tokenizer::is_special(TokenId id) const {
  const Parts::Token* token = parts_->find(id);
  return token != nullptr && token->special;
}

std::vector<TokenId> Tokenizer::special_ids() const {
  std::vector<TokenId> ids;
  for (int id = 0; id < vocab_size(); ++id) {
    if (is_special(id)) ids.push_back(id);
  }
  return ids;
}

std::optional<TokenId> Tokenizer::added_id(std::string_view content) const {
  for (const AddedToken& token : parts_->file.added.tokens()) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

std::optional<TokenId> Tokenizer::bos() const {
  return parts_->file.bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return parts_->file.eos;
}
const std::vector<TokenId>& Tokenizer::begin_ids() const {
  return parts_->file.begin_ids;
}

}  // namespace copse
