#include "gateway/openai/parse_options.h"

namespace copse {
namespace {

// A value that asks for nothing: null, false, 0, "", [] or {}.
bool asks_for_nothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

// Refused unless they ask for nothing.
constexpr const char* kLacking[] = {"logit_bias",
                                    "presence_penalty",
                                    "frequency_penalty",
                                    "top_logprobs",
                                    "prompt_logprobs",
                                    "tools",
                                    "functions",
                                    "function_call",
                                    "audio",
                                    "prediction",
                                    "web_search_options",
                                    "structured_outputs",
                                    "guided_json",
                                    "guided_regex",
                                    "guided_choice",
                                    "guided_grammar",
                                    "grammar",
                                    "json_schema",
                                    "echo",
                                    "suffix",
                                    "use_beam_search",
                                    "return_token_ids",
                                    "include_stop_str_in_output",
                                    "continue_final_message",
                                    "chat_template",
                                    "documents",
                                    "chat_template_kwargs",
                                    "bad_words",
                                    "mm_processor_kwargs"};

// Refused unless true, their default.
constexpr const char* kAlwaysTrue[] = {"skip_special_tokens", "add_generation_prompt",
                                       "add_special_tokens", "spaces_between_special_tokens"};

bool is_number(const Json* value, double number) {
  return value->is_number() && value->get<double>() == number;
}

bool is_text(const Json* value, const char* text) {
  return value->is_string() && value->get_ref<const std::string&>() == text;
}

}  // namespace

void refuse_unsupported(Fields& fields) {
  for (const char* name : kLacking) {
    const Json* value = fields.find(name);
    if (value != nullptr && !asks_for_nothing(*value)) fields.unsupported(name);
  }
  for (const char* name : kAlwaysTrue) {
    const Json* value = fields.find(name);
    if (value != nullptr && *value != true) fields.unsupported(name);
  }
  // logprobs: 0 of text completions still asks for the sampled token's.
  const Json* logprobs = fields.find("logprobs");
  if (logprobs != nullptr && *logprobs != false) fields.unsupported("logprobs");
  const Json* repetition = fields.find("repetition_penalty");
  if (repetition != nullptr && !is_number(repetition, 1)) fields.unsupported("repetition_penalty");
  const Json* best_of = fields.find("best_of");
  if (best_of != nullptr && !is_number(best_of, 1)) fields.unsupported("best_of");
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && !is_text(choice, "none") && !is_text(choice, "auto")) {
    fields.unsupported("tool_choice");
  }
  const Json* format = fields.find("response_format");
  if (format != nullptr) {
    const auto type = format->is_object() ? format->find("type") : format->end();
    if (!format->is_object() || type == format->end() || !is_text(&*type, "text")) {
      fields.unsupported("response_format");
    }
  }
  const Json* modalities = fields.find("modalities");
  if (modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.unsupported("modalities");
  }
}

}  // namespace copse
