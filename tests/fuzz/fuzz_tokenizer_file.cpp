// Any bytes as tokenizer.json:
// 1. the file is read, or refused with an error that names a key;
// 2. what was read encodes a text, and its tokens are the text again.
#include <cstdint>

#include "base/check.h"
#include "model/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = copse::Tokenizer::parse(text, "");
  if (!tokenizer) {
    CHECK(!tokenizer.error().field.empty());
    return 0;
  }
  const std::string sample = "it's  <s> 12\xC3\xA9\n";
  const auto ids = (*tokenizer)->encode(sample, copse::EncodeOptions{.parse_special = true});
  if (ids) CHECK((*tokenizer)->decode(*ids) == sample);
  return 0;
}
