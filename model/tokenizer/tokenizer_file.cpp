#include "model/tokenizer/tokenizer_file.h"

#include "base/limits.h"
#include "model/tokenizer/json_fields.h"

namespace copse {
namespace {

constexpr JsonBounds kFileBounds{.bytes = limits::tokenizer_bytes, .nodes = 1u << 23};

std::optional<TokenId> id_of(const AddedTokens& added, std::string_view content) {
  for (const AddedToken& token : added.tokens()) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

Status check_normalizer(const Json& root) {
  if (json_absent(root, "normalizer")) return {};
  const Json& normalizer = root["normalizer"];
  COPSE_TRY(const std::string type, json_string(normalizer, "type", "normalizer"));
  if (type != "Sequence") return json_unsupported("normalizer.type", type);
  COPSE_TRY(const Json* parts, json_array(normalizer, "normalizers", "normalizer"));
  if (!parts->empty()) return json_unsupported("normalizer.normalizers", "a normalizer");
  return {};
}

Status check_decoder(const Json& root) {
  COPSE_TRY(const Json* decoder, json_object(root, "decoder", ""));
  COPSE_TRY(const std::string type, json_string(*decoder, "type", "decoder"));
  if (type != "ByteLevel") return json_unsupported("decoder.type", type);
  return {};
}

// An added token may also stand in the vocabulary; then both must mean the same.
Status check_added(const AddedTokens& added, const Bpe& bpe) {
  for (const AddedToken& token : added.tokens()) {
    const auto at = static_cast<std::size_t>(token.id);
    if (at >= bpe.entries().size() || !bpe.entries()[at].known) continue;
    if (bpe.entries()[at].bytes != token.content) {
      return json_malformed("added_tokens",
                            "free of ids of other tokens: " + std::to_string(token.id));
    }
  }
  return {};
}

// "single" of a TemplateProcessing: special tokens, then the text, and nothing behind it.
Result<std::vector<TokenId>> begin_of_template(const Json& processor, const AddedTokens& added,
                                               const std::string& key) {
  COPSE_TRY(const Json* single, json_array(processor, "single", key));
  std::vector<TokenId> begin;
  bool text_seen = false;
  for (std::size_t i = 0; i < single->size(); ++i) {
    const std::string part_key = key + ".single[" + std::to_string(i) + "]";
    if (text_seen) return json_unsupported(part_key, "a part behind the text");
    const Json& part = (*single)[i];
    if (!part.is_object()) return json_malformed(part_key, "an object");
    if (part.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    COPSE_TRY(const Json* special, json_object(part, "SpecialToken", part_key));
    COPSE_TRY(const std::string name, json_string(*special, "id", part_key + ".SpecialToken"));
    const std::optional<TokenId> id = id_of(added, name);
    if (!id) return json_malformed(part_key + ".SpecialToken.id", "an added token");
    begin.push_back(*id);
  }
  if (!text_seen) return json_malformed(key + ".single", "with a Sequence in it");
  return begin;
}

Result<std::vector<TokenId>> begin_of_processor(const Json& processor, const AddedTokens& added,
                                                const std::string& key, int depth) {
  COPSE_TRY(const std::string type, json_string(processor, "type", key));
  if (type == "ByteLevel") return std::vector<TokenId>{};  // it changes offsets alone
  if (type == "TemplateProcessing") return begin_of_template(processor, added, key);
  if (type != "Sequence" || depth > 2) return json_unsupported(key + ".type", type);
  COPSE_TRY(const Json* parts, json_array(processor, "processors", key));
  std::vector<TokenId> begin;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string part_key = key + ".processors[" + std::to_string(i) + "]";
    COPSE_TRY(const std::vector<TokenId> more,
              begin_of_processor((*parts)[i], added, part_key, depth + 1));
    begin.insert(begin.begin(), more.begin(), more.end());
  }
  return begin;
}

// "bos_token" and the like: a text, or an object with "content".
Result<std::optional<TokenId>> named_token(const Json& config, const char* name,
                                           const AddedTokens& added) {
  if (json_absent(config, name)) return std::optional<TokenId>();
  const Json& value = config[name];
  std::string content;
  if (value.is_object()) {
    COPSE_TRY(content, json_string(value, "content", name));
  } else {
    COPSE_TRY(content, json_string(config, name, ""));
  }
  const std::optional<TokenId> id = id_of(added, content);
  if (!id) return json_malformed(name, "an added token of tokenizer.json");
  return id;
}

Status read_config(std::string_view config_json, TokenizerFile& file) {
  COPSE_TRY(const Json config, parse_json(config_json, "tokenizer_config.json", {}));
  if (!config.is_object()) return json_malformed("tokenizer_config.json", "an object");
  COPSE_TRY(file.bos, named_token(config, "bos_token", file.added));
  COPSE_TRY(file.eos, named_token(config, "eos_token", file.added));
  COPSE_TRY(const bool add_bos, json_bool(config, "add_bos_token", "", false));
  if (add_bos && file.begin_ids.empty() && file.bos) file.begin_ids.push_back(*file.bos);
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view tokenizer_json,
                                           std::string_view config_json) {
  COPSE_TRY(const Json root, parse_json(tokenizer_json, "tokenizer.json", kFileBounds));
  if (!root.is_object()) return json_malformed("tokenizer.json", "an object");
  for (const char* key : {"truncation", "padding"}) {
    if (!json_absent(root, key)) return json_unsupported(key, "a value");
  }
  COPSE_RETURN_IF_ERROR(check_normalizer(root));
  COPSE_RETURN_IF_ERROR(check_decoder(root));
  TokenizerFile file;
  COPSE_TRY(const Json* model, json_object(root, "model", ""));
  COPSE_TRY(file.bpe, Bpe::parse(*model));
  COPSE_TRY(file.added, AddedTokens::parse(root));
  COPSE_RETURN_IF_ERROR(check_added(file.added, file.bpe));
  COPSE_TRY(const Json* pre_tokenizer, json_object(root, "pre_tokenizer", ""));
  COPSE_TRY(file.pre_tokenizer, PreTokenizer::parse(*pre_tokenizer));
  if (!json_absent(root, "post_processor")) {
    COPSE_TRY(file.begin_ids,
              begin_of_processor(root["post_processor"], file.added, "post_processor", 0));
  }
  if (!config_json.empty()) COPSE_RETURN_IF_ERROR(read_config(config_json, file));
  return file;
}

}  // namespace copse
