#pragma once
// A model's chat template (Jinja, as Hugging Face models carry it), run with bounded work. What
// comes out is marked by who wrote it, so that a special token in a user's text stays text.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/tokenizer/text_span.h"

namespace copse {

// Keys keep the order in which they came: tojson prints them so. A Json converts to it, sorted.
using OrderedJson = nlohmann::ordered_json;

struct ChatInputs {
  OrderedJson messages = OrderedJson::array();  // objects, each with a string "role"
  OrderedJson tools = nullptr;                  // null: none
  bool add_generation_prompt = true;
  OrderedJson extra = OrderedJson::object();  // further variables, "enable_thinking" and the like
};

struct RenderedPrompt {
  std::vector<TextSpan> spans;  // neighbours differ in origin

  std::string text() const;
};

class ChatTemplate {
 public:
  // `variables` are what the model's own files define: "bos_token" and other special tokens, whose
  // text counts as the template's. Errors name the line and the construct: malformed for a syntax
  // error, unsupported for a tag, filter or test that is not known here, resource_exhausted.
  static Result<ChatTemplate> parse(std::string_view source,
                                    OrderedJson variables = OrderedJson::object());

  // What comes from `inputs` is marked from_data, except the usual roles (system, developer, user,
  // assistant, tool, function), of which templates build special tokens. Errors: invalid_argument
  // with field "messages" for what the template itself refuses or messages that are none,
  // unsupported for a method or function that is not known, resource_exhausted for too much work.
  Result<RenderedPrompt> render(const ChatInputs& inputs) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;  // read only: any number of threads can render
};

// DIR/chat_template.jinja or else "chat_template" of DIR/tokenizer_config.json (of several the one
// called "default"), with the special tokens of tokenizer_config.json. not_found if there is none.
Result<ChatTemplate> load_chat_template(const std::string& dir);

}  // namespace copse
