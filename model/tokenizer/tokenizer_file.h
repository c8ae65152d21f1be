#pragma once
// tokenizer.json and tokenizer_config.json as they are read, before anything is encoded.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace copse {

struct TokenizerFile {
  Bpe bpe;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  std::vector<TokenId> begin_ids;  // what the post-processor, or add_bos_token, puts in front
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
};

// `config_json` may be empty. Each error names the key at fault.
Result<TokenizerFile> parse_tokenizer_file(std::string_view tokenizer_json,
                                           std::string_view config_json);

}  // namespace copse
