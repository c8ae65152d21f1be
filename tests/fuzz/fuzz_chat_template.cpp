// Any bytes as a chat template:
// 1. the source is parsed, or refused with a message;
// 2. it renders a conversation, or says why not; what comes out is valid UTF-8;
// 3. no byte of the secret in the user's text is ever marked as the template's.
#include <cstdint>

#include "base/check.h"
#include "model/chat_template/chat_template.h"
#include "model/tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using copse::OrderedJson;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  // Control characters that a template can hardly spell by itself, unless it has a backslash.
  const std::string secret = "\x01\x02\x03";
  const bool can_spell = source.find('\\') != std::string_view::npos ||
                         source.find_first_of(secret) != std::string_view::npos;
  const auto parsed =
      copse::ChatTemplate::parse(source, OrderedJson{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  copse::ChatInputs inputs;
  inputs.messages = {OrderedJson{{"role", "system"}, {"content", " brief \n"}},
                     OrderedJson{{"role", "user"}, {"content", "a " + secret + " b"}},
                     OrderedJson{{"role", "assistant"}, {"content", nullptr}, {"n", {1, 2.5}}}};
  const auto prompt = parsed->render(inputs);
  if (!prompt) return 0;
  for (const copse::TextSpan& span : prompt->spans) {
    CHECK(copse::is_valid_utf8(span.text));
    const bool holds_secret = span.text.find_first_of(secret) != std::string::npos;
    CHECK(can_spell || !holds_secret || span.origin == copse::TextOrigin::from_data);
  }
  return 0;
}
