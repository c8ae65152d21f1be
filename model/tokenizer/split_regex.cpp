#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/split_regex.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/limits.h"

namespace copse {
namespace {

// Oniguruma's \s is Unicode's White_Space. PCRE2's \s has U+180E besides, so it is spelled out.
constexpr std::string_view kSpaces = "\\t-\\r\\x{85}\\p{Z}";

Error unsupported(const std::string& field, std::string_view what) {
  return {ErrorCode::unsupported, field, "the pattern uses " + std::string(what)};
}

// What one escape outside or inside a character class becomes.
std::string escape(char letter, bool in_class) {
  const std::string spaces(kSpaces);
  if (letter == 's') return in_class ? spaces : "[" + spaces + "]";
  if (letter == 'S' && !in_class) return "[^" + spaces + "]";
  return {'\\', letter};
}

template <class T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using CodePtr = std::unique_ptr<pcre2_code, Freed<pcre2_code, pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context,
                                       Freed<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data, pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack, pcre2_jit_stack_free>>;

constexpr std::size_t kJitStackBytes = 1u << 20;
constexpr std::uint32_t kMatchHeapKib = 32u << 10;

std::size_t next_character(std::string_view text, std::size_t at) {
  do ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

struct MatchScratch::State {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(32u << 10, kJitStackBytes, nullptr)};
};

MatchScratch::MatchScratch() : state_(std::make_unique<State>()) {
  if (!state_->data || !state_->context) throw std::bad_alloc();
  pcre2_set_match_limit(state_->context.get(), limits::tokenizer_match_steps);
  pcre2_set_heap_limit(state_->context.get(), kMatchHeapKib);
  if (state_->stack) {
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
}

MatchScratch::~MatchScratch() = default;

struct SplitRegex::Code {
  CodePtr pcre2;
};

Result<std::string> pcre2_pattern(std::string_view oniguruma, const std::string& field) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < oniguruma.size(); ++i) {
    const char c = oniguruma[i];
    const char next = i + 1 < oniguruma.size() ? oniguruma[i + 1] : '\0';
    if (c == '\\' && i + 1 < oniguruma.size()) {
      if (next == 'h' || next == 'H') return unsupported(field, "\\h, a hexadecimal digit");
      out += escape(next, in_class);
      ++i;
    } else if (in_class && c == '&' && next == '&') {
      return unsupported(field, "&&, the intersection of character classes");
    } else if (in_class && c == '[' && next != ':') {
      return unsupported(field, "a character class inside another");
    } else if (!in_class && c == '(' && next == '*') {
      return unsupported(field, "(*, which PCRE2 alone knows");
    } else {
      // "[:alpha:]" inside a class has brackets of its own.
      const std::size_t close = in_class && c == '[' ? oniguruma.find(":]", i + 2) : i;
      if (close == std::string_view::npos) return unsupported(field, "[: without its end");
      if (close != i) {
        out += oniguruma.substr(i, close + 2 - i);
        i = close + 1;
        continue;
      }
      out += c;
      if (c == '[' && next == '^') {
        out += '^';
        ++i;
      }
      if (c == ']') in_class = false;
      if (c == '[') {
        in_class = true;
        if (oniguruma.substr(i + 1).starts_with(']')) {  // stands for itself in first place
          out += "\\]";
          ++i;
        }
      }
    }
  }
  return out;
}

Result<SplitRegex> SplitRegex::compile(std::string_view pattern, const std::string& field) {
  if (pattern.size() > limits::tokenizer_pattern_bytes) {
    return Error{ErrorCode::resource_exhausted, field, "the pattern is too long"};
  }
  COPSE_TRY(const std::string translated, pcre2_pattern(pattern, field));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma ^ and $ always stand at the ends of lines.
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             options, &error, &offset, context.get()));
  if (!code) {
    return Error{ErrorCode::malformed, field,
                 "not a regular expression at byte " + std::to_string(offset)};
  }
  // Where executable memory is forbidden this fails and the interpreter does the same, slower.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return SplitRegex(std::make_shared<const Code>(Code{std::move(code)}));
}

Result<std::vector<ByteRange>> SplitRegex::matches(std::string_view text,
                                                   MatchScratch& scratch) const {
  pcre2_match_data* data = scratch.state_->data.get();
  pcre2_match_context* context = scratch.state_->context.get();
  std::vector<ByteRange> found;
  for (std::size_t at = 0; at < text.size();) {
    // The caller has checked the text: a check per match would make long texts quadratic.
    const int count = pcre2_match(code_->pcre2.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, data, context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return Error{ErrorCode::resource_exhausted, "text", "cannot be split within bounded work"};
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    // \K in a lookaround can put the start after the end or before the last match.
    if (bounds[1] > bounds[0] && bounds[0] >= at) {
      found.push_back({bounds[0], bounds[1]});
      at = bounds[1];
    } else {
      at = next_character(text, std::max<std::size_t>(at, bounds[1]));
    }
  }
  return found;
}

}  // namespace copse
