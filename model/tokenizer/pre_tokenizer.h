#pragma once
// Cuts a text into the words that byte pairs are merged within.
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/tokenizer/split_regex.h"

namespace copse {

class PreTokenizer {
 public:
  // From the value of "pre_tokenizer" in tokenizer.json: Split (a regex or a string, Isolated),
  // Digits, ByteLevel without a prefix space, and Sequences of these. An error names the key.
  static Result<PreTokenizer> parse(const Json& value);

  // The words in order, without gaps: joined they are the text. `text` must be valid UTF-8.
  Result<std::vector<ByteRange>> split(std::string_view text) const;

 private:
  Status add(const Json& value, const std::string& key, int depth);
  Status add_split(const Json& value, const std::string& key);
  Status add_digits(const Json& value, const std::string& key);
  Status add_byte_level(const Json& value, const std::string& key);
  Status add_pattern(std::string_view pattern, const std::string& key);

  // Each cuts the pieces that the one before it left: a match is a piece, a gap is a piece.
  std::vector<SplitRegex> stages_;
  bool byte_level_ = false;
};

}  // namespace copse
