#include "gateway/openai/parse_request.h"

#include <utility>

#include "base/json.h"
#include "base/limits.h"
#include "gateway/openai/fields.h"
#include "gateway/openai/parse_options.h"

namespace copse {
namespace {

// Some clients send a key twice; the last one wins, as in their own parsers.
constexpr JsonBounds kBodyBounds{limits::chat_body_bytes, limits::json_depth, 1u << 20, true};

Result<Json> parse_body(std::string_view body) {
  COPSE_TRY(Json json, parse_json(body, "body", kBodyBounds));
  if (!json.is_object()) return Error{ErrorCode::malformed, "body", "not an object"};
  return json;
}

std::string indexed(const char* name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

// A message's content: a string, or parts that are all text.
std::string parse_content(Fields& message) {
  const Json* content = message.find("content");
  if (content == nullptr) {
    message.invalid("content", "is missing");
    return {};
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array() || content->empty()) {
    message.invalid("content", "must be a string or a list of text parts");
    return {};
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const std::string name = indexed("content", i);
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      message.invalid(name, "must be an object with a type");
      return {};
    }
    if (*type != "text") {
      message.unsupported(name);
      return {};
    }
    const auto piece = part.find("text");
    if (piece == part.end() || !piece->is_string()) {
      message.invalid(name + ".text", "must be a string");
      return {};
    }
    text += piece->get_ref<const std::string&>();
  }
  return text;
}

Result<ChatMessage> parse_message(const Json& json, const std::string& name) {
  if (!json.is_object()) {
    return Error{ErrorCode::invalid_argument, name, name + " must be an object."};
  }
  Fields fields(json, name + ".");
  ChatMessage message;
  message.role = fields.text("role", 32).value_or("");
  if (message.role == "developer") message.role = "system";  // OpenAI's newer name for it
  if (message.role == "tool" || message.role == "function") {
    fields.unsupported("role");
  } else if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    fields.invalid("role", "must be system, developer, user or assistant");
  }
  for (const char* lacking : {"tool_calls", "function_call", "audio"}) {
    const Json* value = fields.find(lacking);
    if (value != nullptr && !value->empty()) fields.unsupported(lacking);
  }
  message.content = parse_content(fields);
  if (fields.failed()) return fields.status().error();
  return message;
}

Result<std::vector<ChatMessage>> parse_messages(const Json* json) {
  const auto wrong = [](const char* message) {
    return Error{ErrorCode::invalid_argument, "messages", message};
  };
  if (json == nullptr) return wrong("messages is missing.");
  if (!json->is_array() || json->empty()) return wrong("messages must be a list of messages.");
  if (json->size() > limits::messages_per_chat) return wrong("messages holds too many messages.");
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < json->size(); ++i) {
    COPSE_TRY(ChatMessage message, parse_message((*json)[i], indexed("messages", i)));
    messages.push_back(std::move(message));
  }
  return messages;
}

Result<std::vector<TokenId>> parse_prompt_ids(const Json& json) {
  if (json.size() > limits::sequence_tokens) {
    return Error{ErrorCode::invalid_argument, "prompt", "prompt holds too many token ids."};
  }
  std::vector<TokenId> ids;
  ids.reserve(json.size());
  for (const Json& id : json) {
    if (!id.is_number_integer()) {
      return Error{ErrorCode::invalid_argument, "prompt",
                   "prompt must be one string or one list of token ids."};
    }
    if (id < 0 || id >= limits::vocabulary) {
      return Error{ErrorCode::invalid_argument, "prompt",
                   "prompt holds the token id " + id.dump() + ", which does not exist."};
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<std::variant<std::string, std::vector<TokenId>>> parse_prompt(const Json* json) {
  const auto wrong = [](const char* message) {
    return Error{ErrorCode::invalid_argument, "prompt", message};
  };
  if (json == nullptr) return wrong("prompt is missing.");
  // A list of one prompt is that prompt: some clients always send a list.
  if (json->is_array() && json->size() == 1 && ((*json)[0].is_string() || (*json)[0].is_array())) {
    json = &(*json)[0];
  }
  if (json->is_string()) return {json->get<std::string>()};
  if (!json->is_array()) return wrong("prompt must be one string or one list of token ids.");
  if (json->empty()) return wrong("prompt is empty.");
  COPSE_TRY(std::vector<TokenId> ids, parse_prompt_ids(*json));
  return {std::move(ids)};
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view body) {
  COPSE_TRY(const Json json, parse_body(body));
  Fields fields(json);
  ChatRequest request;
  request.options = parse_options(fields);
  refuse_unsupported(fields);
  if (fields.failed()) return fields.status().error();
  COPSE_TRY(request.messages, parse_messages(fields.find("messages")));
  return request;
}

Result<CompletionRequest> parse_completion_request(std::string_view body) {
  COPSE_TRY(const Json json, parse_body(body));
  Fields fields(json);
  CompletionRequest request;
  request.options = parse_options(fields);
  refuse_unsupported(fields);
  if (fields.failed()) return fields.status().error();
  COPSE_TRY(request.prompt, parse_prompt(fields.find("prompt")));
  return request;
}

}  // namespace copse
