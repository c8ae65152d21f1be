#include "model/tokenizer/pre_tokenizer.h"

#include <cctype>

#include "base/limits.h"
#include "model/tokenizer/json_fields.h"

namespace copse {
namespace {

// The words of GPT-2, which ByteLevel means by "use_regex" (Radford et al., 2019).
constexpr std::string_view kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string quoted_pattern(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || (c & 0x80) != 0;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const Json& value) {
  PreTokenizer made;
  COPSE_RETURN_IF_ERROR(made.add(value, "pre_tokenizer", 0));
  if (!made.byte_level_) return json_unsupported("pre_tokenizer", "a tokenizer without ByteLevel");
  return made;
}

Status PreTokenizer::add(const Json& value, const std::string& key, int depth) {
  COPSE_TRY(const std::string type, json_string(value, "type", key));
  if (byte_level_) return json_unsupported(key, "a pre-tokenizer behind ByteLevel");
  if (type == "Split") return add_split(value, key);
  if (type == "Digits") return add_digits(value, key);
  if (type == "ByteLevel") return add_byte_level(value, key);
  if (type != "Sequence" || depth > 2) return json_unsupported(key + ".type", type);
  COPSE_TRY(const Json* parts, json_array(value, "pretokenizers", key));
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string part_key = key + ".pretokenizers[" + std::to_string(i) + "]";
    COPSE_RETURN_IF_ERROR(add((*parts)[i], part_key, depth + 1));
  }
  return {};
}

Status PreTokenizer::add_split(const Json& value, const std::string& key) {
  COPSE_TRY(const Json* pattern, json_object(value, "pattern", key));
  COPSE_TRY(const std::string behavior, json_string(value, "behavior", key));
  COPSE_TRY(const bool invert, json_bool(value, "invert", key, false));
  // Inverted or not, isolated matches and isolated gaps are the same pieces.
  static_cast<void>(invert);
  if (behavior != "Isolated") return json_unsupported(key + ".behavior", behavior);
  if (pattern->contains("Regex")) {
    COPSE_TRY(const std::string regex, json_string(*pattern, "Regex", key + ".pattern"));
    return add_pattern(regex, key + ".pattern.Regex");
  }
  COPSE_TRY(const std::string literal, json_string(*pattern, "String", key + ".pattern"));
  return add_pattern(quoted_pattern(literal), key + ".pattern.String");
}

Status PreTokenizer::add_digits(const Json& value, const std::string& key) {
  COPSE_TRY(const bool individual, json_bool(value, "individual_digits", key, false));
  return add_pattern(individual ? "\\p{N}" : "\\p{N}+", key);
}

Status PreTokenizer::add_byte_level(const Json& value, const std::string& key) {
  COPSE_TRY(const bool prefix_space, json_bool(value, "add_prefix_space", key, true));
  COPSE_TRY(const bool use_regex, json_bool(value, "use_regex", key, true));
  if (prefix_space) return json_unsupported(key + ".add_prefix_space", "true");
  byte_level_ = true;
  if (!use_regex) return {};
  return add_pattern(kByteLevelWords, key);
}

Status PreTokenizer::add_pattern(std::string_view pattern, const std::string& key) {
  if (stages_.size() >= static_cast<std::size_t>(limits::tokenizer_splits)) {
    return Error{ErrorCode::resource_exhausted, key, "too many patterns"};
  }
  COPSE_TRY(SplitRegex regex, SplitRegex::compile(pattern, key));
  stages_.push_back(std::move(regex));
  return {};
}

Result<std::vector<ByteRange>> PreTokenizer::split(std::string_view text) const {
  std::vector<ByteRange> pieces;
  if (text.empty()) return pieces;
  pieces.push_back({0, text.size()});
  MatchScratch scratch;
  for (const SplitRegex& stage : stages_) {
    std::vector<ByteRange> next;
    for (const ByteRange& piece : pieces) {
      // A pattern sees its piece alone, as in Hugging Face's: no lookahead beyond the end.
      COPSE_TRY(const std::vector<ByteRange> found,
                stage.matches(text.substr(piece.begin, piece.end - piece.begin), scratch));
      std::size_t at = piece.begin;
      for (const ByteRange& match : found) {
        if (piece.begin + match.begin > at) next.push_back({at, piece.begin + match.begin});
        next.push_back({piece.begin + match.begin, piece.begin + match.end});
        at = piece.begin + match.end;
      }
      if (at < piece.end) next.push_back({at, piece.end});
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace copse
