#include "gateway/openai/response.h"

#include <utility>

#include "base/json.h"

namespace copse {
namespace {

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    default:
      return "abort";
  }
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens_details", {{"accepted_prediction_tokens", usage.accepted_tokens}}}};
}

Json timings_json(const Timings& timings) {
  return {{"prompt_n", timings.prompt_n},
          {"prompt_ms", timings.prompt_ms},
          {"predicted_n", timings.predicted_n},
          {"predicted_ms", timings.predicted_ms},
          {"predicted_per_second", timings.predicted_per_second},
          {"draft_n", timings.draft_n},
          {"draft_n_accepted", timings.draft_n_accepted},
          {"accepted_per_round", timings.accepted_per_round}};
}

Json head_json(const ReplyHead& head, bool chunk) {
  const char* object = "text_completion";  // the same for whole answers and chunks
  if (head.kind == ReplyKind::chat) object = chunk ? "chat.completion.chunk" : "chat.completion";
  Json json{{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
  if (chunk && head.include_usage) json["usage"] = nullptr;
  return json;
}

void set_finish(Json& choice, const ChoiceAnswer& answer) {
  choice["finish_reason"] = finish_name(answer.reason);
  choice["stop_reason"] = answer.stop_string.empty() ? Json(nullptr) : Json(answer.stop_string);
}

// A chunk of one choice: `delta` for chat, `text` for text completions.
Json chunk_json(const ReplyHead& head, std::size_t choice, Json delta, const std::string& text) {
  Json entry{{"index", choice}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (head.kind == ReplyKind::chat) {
    entry["delta"] = std::move(delta);
  } else {
    entry["text"] = text;
  }
  Json json = head_json(head, true);
  json["choices"] = Json::array({std::move(entry)});
  return json;
}

}  // namespace

std::string whole_answer(const ReplyHead& head, const std::vector<ChoiceAnswer>& choices,
                         const Usage& usage, const Timings& timings) {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json entry{{"index", i}, {"logprobs", nullptr}};
    if (head.kind == ReplyKind::chat) {
      entry["message"] = {{"role", "assistant"}, {"content", choices[i].text}};
    } else {
      entry["text"] = choices[i].text;
    }
    set_finish(entry, choices[i]);
    list.push_back(std::move(entry));
  }
  Json json = head_json(head, false);
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  json["timings"] = timings_json(timings);
  return dump_json(json);
}

std::string role_chunk(const ReplyHead& head, std::size_t choice) {
  return dump_json(chunk_json(head, choice, {{"role", "assistant"}, {"content", ""}}, ""));
}

std::string text_chunk(const ReplyHead& head, std::size_t choice, const std::string& text) {
  return dump_json(chunk_json(head, choice, {{"content", text}}, text));
}

std::string finish_chunk(const ReplyHead& head, std::size_t choice, const ChoiceAnswer& answer,
                         const Timings& timings) {
  Json json = chunk_json(head, choice, Json::object(), "");
  set_finish(json["choices"][0], answer);
  json["timings"] = timings_json(timings);
  return dump_json(json);
}

std::string usage_chunk(const ReplyHead& head, const Usage& usage) {
  Json json = head_json(head, true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return dump_json(json);
}

std::string model_list(const std::string& model, std::int64_t created,
                       std::uint32_t context_tokens) {
  const Json entry{{"id", model},
                   {"object", "model"},
                   {"created", created},
                   {"owned_by", "copse"},
                   {"max_model_len", context_tokens > 0 ? Json(context_tokens) : Json(nullptr)}};
  return dump_json(Json{{"object", "list"}, {"data", Json::array({entry})}});
}

}  // namespace copse
