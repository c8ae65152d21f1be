#include "tools/cli/bench_prompt.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/limits.h"
#include "base/random.h"
#include "model/tokenizer/tokenizer.h"

namespace copse::cli {
namespace {

constexpr char kParagraph[] =
    "A hazel that is cut down to its stool sends up many shoots in the following spring, and every "
    "few winters the poles are taken again. Where the trees stand in rows the light reaches the "
    "ground for two summers, so primroses come, then brambles, then shade.\n\n"
    "def poles(stools, years):\n    \"\"\"How many poles a coupe gives after so many years.\"\"\"\n"
    "    return sum(stool.shoots * stool.survival ** years for stool in stools)\n\n";

}  // namespace

Result<BenchPrompts> BenchPrompts::make(const PromptOptions& options, const std::string& model,
                                        int vocabulary) {
  BenchPrompts prompts;
  prompts.seed_ = options.seed;
  prompts.vocabulary_ = vocabulary;
  std::error_code ignored;
  const bool has_tokenizer = std::filesystem::exists(model + "/tokenizer.json", ignored);
  if (options.kind == "ids" || (options.kind == "auto" && !has_tokenizer)) {
    prompts.description_ =
        "token ids of a seeded stream, uniform (seed " + std::to_string(options.seed) + ")";
    return prompts;
  }
  std::string text = kParagraph;
  if (!options.text_file.empty()) {
    COPSE_TRY(text, read_file(options.text_file, limits::prompt_bytes, FileKind::any));
  }
  COPSE_TRY(const auto tokenizer, Tokenizer::load(model));
  COPSE_TRY(prompts.begin_, tokenizer->encode("", {.parse_special = false, .add_bos = true}));
  COPSE_TRY(prompts.text_, tokenizer->encode(text, {}));
  if (prompts.text_.empty()) {
    return Error{ErrorCode::invalid_argument, "--prompt-file", "holds no token"};
  }
  prompts.description_ = "repeated text of " + std::to_string(prompts.text_.size()) + " tokens";
  return prompts;
}

std::vector<TokenId> BenchPrompts::prompt(int tokens, int index) const {
  const auto count = static_cast<std::size_t>(tokens);
  std::vector<TokenId> ids(
      begin_.begin(), begin_.begin() + static_cast<std::ptrdiff_t>(std::min(count, begin_.size())));
  if (text_.empty()) {
    SeededRandom stream(seed_ + static_cast<std::uint64_t>(index));
    const auto bound = static_cast<std::uint64_t>(std::max(1, vocabulary_));
    while (ids.size() < count) ids.push_back(static_cast<TokenId>(stream.below(bound)));
    return ids;
  }
  // A prime step, so that the prompts begin at different words.
  std::size_t at = static_cast<std::size_t>(index) * 37 % text_.size();
  for (; ids.size() < count; at = (at + 1) % text_.size()) ids.push_back(text_[at]);
  return ids;
}

}  // namespace copse::cli
