#pragma once
// Prompts of a given length in tokens, the same on every machine and in every run.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace copse::cli {

struct PromptOptions {
  std::string kind = "auto";  // text, ids, or auto: text where the model has a tokenizer
  std::string text_file;      // of text; empty: a paragraph of ours
  std::uint64_t seed = 1;     // of ids
};

class BenchPrompts {
 public:
  // Errors name the file or the flag: no tokenizer for text, or a text without tokens.
  static Result<BenchPrompts> make(const PromptOptions& options, const std::string& model,
                                   int vocabulary);

  // Exactly `tokens` ids. Prompts of other indices begin elsewhere in the text or stream.
  std::vector<TokenId> prompt(int tokens, int index) const;
  // What the prompts are, in a few words, for the reader of a result.
  const std::string& description() const { return description_; }

 private:
  std::vector<TokenId> begin_;  // what the tokenizer puts in front
  std::vector<TokenId> text_;   // repeated; empty: ids of the stream
  std::uint64_t seed_ = 0;
  int vocabulary_ = 0;
  std::string description_;
};

}  // namespace copse::cli
