#pragma once
// The pattern of a pre-tokenizer. tokenizer.json is written for Oniguruma; PCRE2 reads most of the
// same language, and what it would silently read otherwise is rewritten or refused here.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace copse {

// Part of a text, in bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Memory that matching needs, for one thread at a time; any number of patterns can share it.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

 private:
  friend class SplitRegex;
  struct State;
  std::unique_ptr<State> state_;
};

class SplitRegex {
 public:
  // Errors carry `field`, the key of tokenizer.json where the pattern stands: unsupported for what
  // PCRE2 reads otherwise than Oniguruma, malformed for what is no pattern.
  static Result<SplitRegex> compile(std::string_view pattern, const std::string& field);

  // The non-empty matches in the text, in order; `text` must be valid UTF-8. The work is bounded:
  // resource_exhausted when the pattern backtracks without end.
  Result<std::vector<ByteRange>> matches(std::string_view text, MatchScratch& scratch) const;

 private:
  struct Code;
  explicit SplitRegex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;  // read only once compiled: any number of threads can match
};

// The pattern as PCRE2 must see it; separate for its tests.
Result<std::string> pcre2_pattern(std::string_view oniguruma, const std::string& field);

}  // namespace copse
