#pragma once
// Tokens that stand beside the byte pairs and are found in the text before it is cut into words:
// the specials, role markers and the like.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/types.h"
#include "model/tokenizer/split_regex.h"

namespace copse {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     // left out of decoded text on request
  bool normalized = false;  // looked for in the second pass only
};

struct AddedMatch {
  ByteRange range;
  TokenId id = 0;
};

class AddedTokens {
 public:
  // From the value of "added_tokens" in tokenizer.json; an error names the key.
  static Result<AddedTokens> parse(const Json& root);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // The tokens that lie wholly inside one of the `allowed` ranges (in order, apart), in order: the
  // leftmost first, the longest of those. First the tokens that are not normalized, then the
  // others in what is left, as in Hugging Face's.
  std::vector<AddedMatch> find(std::string_view text, const std::vector<ByteRange>& allowed) const;

 private:
  // The tokens of one pass in byte order, so that candidates can be narrowed byte by byte.
  using Pass = std::vector<AddedToken>;
  static Result<AddedToken> parse_one(const Json& value, const std::string& key);
  static const AddedToken* longest_at(const Pass& pass, std::string_view text);

  std::vector<AddedToken> tokens_;
  std::array<Pass, 2> passes_;  // the tokens that are not normalized, and the others
};

}  // namespace copse
