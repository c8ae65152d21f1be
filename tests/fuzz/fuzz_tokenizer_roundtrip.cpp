// Any bytes as a text and as ids of the embedded model's tokenizer; run from the source root.
// 1. a valid text encodes, with and without special tokens, and decodes to itself;
// 2. a text that is not UTF-8 is refused;
// 3. any ids decode, and the detokenizer's deltas are valid and are the decoded text together.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tokenizer = copse::Tokenizer::load("models/sapling").value();
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer->encode(text, {.parse_special = parse_special});
    CHECK(ids.ok() == copse::is_valid_utf8(text));
    if (ids) CHECK(tokenizer->decode(*ids) == text);
  }
  std::vector<copse::TokenId> ids;
  for (std::size_t i = 0; i + 2 <= size; i += 2) {
    std::int16_t id = 0;
    std::memcpy(&id, data + i, 2);
    ids.push_back(id);
  }
  copse::Detokenizer detokenizer(*tokenizer);
  std::string joined;
  for (const copse::TokenId id : ids) {
    const std::string delta = detokenizer.push(id);
    CHECK(copse::is_valid_utf8(delta));
    joined += delta;
  }
  CHECK(joined + detokenizer.finish() == tokenizer->decode(ids));
  return 0;
}
