#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "base/limits.h"
#include "model/tokenizer/json_fields.h"

namespace copse {
namespace {

bool content_less(const AddedToken& a, const AddedToken& b) {
  return a.content < b.content;
}

// The byte of a candidate at `depth`, -1 behind its end: so it sorts before all bytes.
int byte_at(const AddedToken& token, std::size_t depth) {
  return depth < token.content.size() ? static_cast<unsigned char>(token.content[depth]) : -1;
}

}  // namespace

Result<AddedTokens> AddedTokens::parse(const Json& root) {
  AddedTokens made;
  if (json_absent(root, "added_tokens")) return made;
  COPSE_TRY(const Json* values, json_array(root, "added_tokens", ""));
  if (values->size() > static_cast<std::size_t>(limits::added_tokens)) {
    return Error{ErrorCode::resource_exhausted, "added_tokens", "too many"};
  }
  std::unordered_set<std::string> contents;
  std::unordered_set<TokenId> ids;
  for (std::size_t i = 0; i < values->size(); ++i) {
    const std::string key = "added_tokens[" + std::to_string(i) + "]";
    COPSE_TRY(AddedToken token, parse_one((*values)[i], key));
    if (!contents.insert(token.content).second) {
      return json_malformed(key + ".content", "a text that no other added token has");
    }
    if (!ids.insert(token.id).second) {
      return json_malformed(key + ".id", "an id that no other added token has");
    }
    made.passes_[token.normalized ? 1 : 0].push_back(token);
    made.tokens_.push_back(std::move(token));
  }
  for (auto& pass : made.passes_) std::sort(pass.begin(), pass.end(), content_less);
  return made;
}

Result<AddedToken> AddedTokens::parse_one(const Json& value, const std::string& key) {
  AddedToken token;
  COPSE_TRY(const std::int64_t id, json_integer(value, "id", key));
  if (id < 0 || id >= limits::vocabulary) {
    return json_malformed(key + ".id", "below " + std::to_string(limits::vocabulary));
  }
  token.id = static_cast<TokenId>(id);
  COPSE_TRY(token.content, json_string(value, "content", key));
  if (token.content.empty() || token.content.size() > limits::added_token_bytes) {
    return json_malformed(key + ".content",
                          "1 to " + std::to_string(limits::added_token_bytes) + " bytes");
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    COPSE_TRY(const bool set, json_bool(value, flag, key, false));
    if (set) return json_unsupported(key + "." + flag, "true");
  }
  COPSE_TRY(token.special, json_bool(value, "special", key, false));
  COPSE_TRY(token.normalized, json_bool(value, "normalized", key, !token.special));
  return token;
}

const AddedToken* AddedTokens::longest_at(const Pass& pass, std::string_view text) {
  auto low = pass.begin();
  auto high = pass.end();
  const AddedToken* longest = nullptr;
  for (std::size_t depth = 0; depth < text.size() && low != high; ++depth) {
    const int byte = static_cast<unsigned char>(text[depth]);
    low = std::lower_bound(low, high, byte, [depth](const AddedToken& token, int wanted) {
      return byte_at(token, depth) < wanted;
    });
    high = std::upper_bound(low, high, byte, [depth](int wanted, const AddedToken& token) {
      return wanted < byte_at(token, depth);
    });
    // The shortest of the candidates sorts first.
    if (low != high && low->content.size() == depth + 1) longest = &*low;
  }
  return longest;
}

std::vector<AddedMatch> AddedTokens::find(std::string_view text,
                                          const std::vector<ByteRange>& allowed) const {
  std::vector<AddedMatch> found;
  std::vector<ByteRange> searched = allowed;
  for (const Pass& pass : passes_) {
    std::vector<ByteRange> left;
    for (const ByteRange& range : searched) {
      std::size_t begin = range.begin;
      for (std::size_t at = range.begin; at < range.end && !pass.empty();) {
        const AddedToken* token = longest_at(pass, text.substr(at, range.end - at));
        if (token == nullptr) {
          ++at;
          continue;
        }
        const std::size_t end = at + token->content.size();
        found.push_back({{at, end}, token->id});
        left.push_back({begin, at});
        begin = at = end;
      }
      left.push_back({begin, range.end});
    }
    searched = std::move(left);
  }
  std::sort(found.begin(), found.end(),
            [](const AddedMatch& a, const AddedMatch& b) { return a.range.begin < b.range.begin; });
  return found;
}

}  // namespace copse
