#include "model/chat_template/chat_template.h"

#include <algorithm>

#include "base/limits.h"
#include "model/chat_template/interpreter.h"
#include "model/chat_template/parser.h"
#include "model/tokenizer/utf8.h"

namespace copse {
namespace {

using chat::Value;

bool is_usual_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                         "assistant", "tool",      "function"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

Error bad_messages(const std::string& what) {
  return {ErrorCode::invalid_argument, "messages", what};
}

Result<Value> message_list(const OrderedJson& messages) {
  if (!messages.is_array()) return bad_messages("must be a list");
  if (messages.size() > static_cast<std::size_t>(limits::messages_per_chat)) {
    return bad_messages("too many");
  }
  std::vector<Value> list;
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) return bad_messages("must hold objects");
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return bad_messages("each must have a role");
    }
    chat::Dict dict;
    for (const auto& [key, item] : message.items()) {
      const bool trusted = key == "role" && is_usual_role(role->get_ref<const std::string&>());
      const TextOrigin origin = trusted ? TextOrigin::from_template : TextOrigin::from_data;
      dict.set(chat::Text(key, TextOrigin::from_data), chat::from_json(item, origin));
    }
    list.push_back(chat::dict_value(std::move(dict)));
  }
  return chat::list_value(std::move(list));
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

struct ChatTemplate::State {
  chat::Body body;
  OrderedJson variables;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, OrderedJson variables) {
  if (source.size() > limits::template_bytes) {
    return Error{ErrorCode::resource_exhausted, "chat_template", "too long"};
  }
  if (!is_valid_utf8(source)) {
    return Error{ErrorCode::malformed, "chat_template", "not valid UTF-8"};
  }
  try {
    auto state = std::make_unique<State>();
    state->body = chat::parse_template(source);
    state->variables = std::move(variables);
    return ChatTemplate(std::move(state));
  } catch (const chat::Failure& failure) {
    return failure.error;
  }
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInputs& inputs) const {
  try {
    chat::Interpreter::Scope globals;
    if (inputs.extra.is_object()) {
      for (const auto& [name, value] : inputs.extra.items()) {
        globals[name] = chat::from_json(value, TextOrigin::from_data);
      }
    }
    // The model's own variables cannot be changed by a request.
    for (const auto& [name, value] : state_->variables.items()) {
      globals[name] = chat::from_json(value, TextOrigin::from_template);
    }
    COPSE_TRY(globals["messages"], message_list(inputs.messages));
    globals["tools"] = chat::from_json(inputs.tools, TextOrigin::from_data);
    globals["documents"] = chat::None{};
    globals["add_generation_prompt"] = inputs.add_generation_prompt;
    chat::Interpreter interpreter(std::move(globals));
    return RenderedPrompt{interpreter.render(state_->body).spans()};
  } catch (const chat::Failure& failure) {
    return failure.error;
  }
}

}  // namespace copse
