#pragma once
// Byte-pair encoding (Sennrich et al., 2016) of one word, in O(n log n) whatever the word.
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/types.h"

namespace copse {

class Bpe {
 public:
  // From the value of "model" in tokenizer.json; an error names the key.
  static Result<Bpe> parse(const Json& model);

  // Appends the word's tokens to `ids`: the pair of the lowest rank merges first, the leftmost of
  // equal ones first.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

  // The bytes of each entry by id, and whether the vocabulary has the id at all (it may have
  // holes).
  struct Entry {
    std::string bytes;
    bool known = false;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  struct Merge {
    std::int32_t rank = 0;
    TokenId merged = 0;
  };
  using Ids = std::unordered_map<std::string_view, TokenId>;

  Result<Ids> read_vocabulary(const Json& model);
  Status read_merges(const Json& model, const Ids& ids);
  const Merge* find(TokenId left, TokenId right) const;

  std::vector<Entry> entries_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::unordered_map<std::string, TokenId> whole_words_;  // filled only for "ignore_merges"
};

}  // namespace copse
