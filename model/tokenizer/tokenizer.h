#pragma once
// Text to token ids and back, for byte-level BPE tokenizers in Hugging Face's tokenizer.json.
// Constant once loaded: any number of threads can use one object.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/tokenizer/text_span.h"

namespace copse {

struct EncodeOptions {
  bool parse_special = false;  // recognise added tokens (specials, role markers) in the text
  bool add_bos = false;        // put the model's begin tokens in front, if it has any
};

struct DecodeOptions {
  bool skip_special = false;  // leave special tokens out of the text
};

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json and, if it is there, DIR/tokenizer_config.json. An error names the
  // key at fault: malformed, unsupported for constructs that copse lacks, resource_exhausted
  // beyond a bound of limits.h.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& dir);

  // The same from texts; `config_json` may be empty.
  static Result<std::unique_ptr<Tokenizer>> parse(std::string_view tokenizer_json,
                                                  std::string_view config_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // At most limits::prompt_bytes; the text must be valid UTF-8 (malformed otherwise). Without
  // parse_special no added token at all comes out of the text, however it is spelled.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const;

  // The ids of the joined spans. An added token is recognised only where all of its bytes are
  // from_template; words may still reach over the border of two spans, as in one text.
  // At most limits::template_output_bytes.
  Result<std::vector<TokenId>> encode(std::span<const TextSpan> spans, bool add_bos = false) const;

  // Valid UTF-8: bytes that are none become U+FFFD. Ids outside the vocabulary add nothing.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // The bytes that the token adds to the text; empty for an id outside the vocabulary. Tokens of
  // one text can cut a character anywhere: Detokenizer puts them together.
  std::string_view token_bytes(TokenId id) const;

  int vocab_size() const;           // one more than the largest id
  bool contains(TokenId id) const;  // ids can have holes
  bool is_special(TokenId id) const;
  std::vector<TokenId> special_ids() const;                         // in ascending order
  std::optional<TokenId> added_id(std::string_view content) const;  // of an added token's text
  std::optional<TokenId> bos() const;             // "bos_token" of tokenizer_config.json
  std::optional<TokenId> eos() const;             // "eos_token" of tokenizer_config.json
  const std::vector<TokenId>& begin_ids() const;  // what add_bos puts in front

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace copse
