#include "gateway/prepare.h"

#include <algorithm>
#include <utility>

#include "gateway/openai/parse_request.h"

namespace copse {
namespace {

ApiError invalid(const char* field, std::string message) {
  return api_error(Error{ErrorCode::invalid_argument, field, std::move(message)});
}

// The first id that the engine's vocabulary does not have.
std::optional<TokenId> unknown_token(const std::vector<TokenId>& ids,
                                     const GatewayWelcome& engine) {
  const auto at = std::find_if(ids.begin(), ids.end(), [&](TokenId id) {
    return id < 0 || static_cast<std::uint32_t>(id) >= engine.vocabulary;
  });
  return at == ids.end() ? std::nullopt : std::optional(*at);
}

ApiError unknown_token_error(const char* field, TokenId id, const GatewayWelcome& engine) {
  return invalid(field, std::string(field) + " holds the token id " + std::to_string(id) +
                            "; the vocabulary has " + std::to_string(engine.vocabulary) +
                            " tokens.");
}

SamplingParams sampling_of(const GenerateOptions& options, const GatewayWelcome& engine,
                           std::uint64_t drawn_seed) {
  SamplingParams sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.min_p = options.min_p;
  // The k most likely of fewer than k tokens are all of them.
  const bool all = static_cast<std::uint32_t>(options.top_k) >= engine.vocabulary;
  sampling.top_k = all ? 0 : options.top_k;
  sampling.seed = options.seed.value_or(drawn_seed);
  return sampling;
}

// Of a prompt that leaves room for one token of an answer.
std::size_t prompt_tokens_max(const GatewayWelcome& engine) {
  const auto context = std::min<std::size_t>(engine.context_tokens, limits::sequence_tokens);
  return context == 0 ? 0 : context - 1;
}

Prepared prepare(const GenerateOptions& options, EncodedPrompt encoded, const char* field,
                 std::uint32_t default_tokens, const GatewayWelcome& engine,
                 std::uint64_t drawn_seed) {
  const std::vector<TokenId>& prompt = encoded.ids;
  if (encoded.tokens_min > prompt_tokens_max(engine)) {
    return context_error(encoded.tokens_min, engine.context_tokens, field,
                         prompt.empty() ? TokenCount::at_least : TokenCount::exact);
  }
  if (prompt.empty()) return invalid(field, std::string(field) + " is empty.");
  if (const auto id = unknown_token(prompt, engine)) return unknown_token_error(field, *id, engine);
  if (const auto id = unknown_token(options.stop_token_ids, engine)) {
    return unknown_token_error("stop_token_ids", *id, engine);
  }
  if (options.stop_token_ids.size() + engine.end_tokens.size() > EndTokens::max_size()) {
    return invalid("stop_token_ids", "stop_token_ids holds too many token ids.");
  }
  GenerationPlan plan;
  Submit& submit = plan.submit;
  // An answer ends with the context at the latest: finish_reason is then "length".
  const auto room = static_cast<std::uint32_t>(engine.context_tokens - prompt.size());
  submit.max_tokens = std::min(options.max_tokens.value_or(default_tokens), room);
  submit.min_tokens = std::min(options.min_tokens, submit.max_tokens);
  submit.prompt.assign(prompt.begin(), prompt.end());
  submit.sampling = sampling_of(options, engine, drawn_seed);
  submit.ignore_end = options.ignore_eos;
  submit.stop_tokens.assign(options.stop_token_ids.begin(), options.stop_token_ids.end());
  submit.draft = options.draft;
  submit.node_budget = options.draft_budget;
  plan.choices = options.choices;
  plan.stop = options.stop;
  plan.end_tokens = options.stop_token_ids;
  if (!options.ignore_eos) {
    plan.end_tokens.insert(plan.end_tokens.end(), engine.end_tokens.begin(),
                           engine.end_tokens.end());
  }
  plan.stream = options.stream;
  plan.head.include_usage = options.include_usage;
  return plan;
}

}  // namespace

Prepared prepare_chat(const ChatRequest& request, const TextModel& model,
                      const GatewayWelcome& engine, std::uint64_t drawn_seed) {
  Result<EncodedPrompt> prompt = model.encode_chat(request.messages, prompt_tokens_max(engine));
  if (!prompt.ok()) {
    return invalid("messages", "messages cannot be written in the model's chat template.");
  }
  // As in OpenAI's API, a chat answer without max_tokens may fill the context.
  return prepare(request.options, std::move(prompt).value(), "messages", engine.context_tokens,
                 engine, drawn_seed);
}

Prepared prepare_completion(const CompletionRequest& request, const TextModel& model,
                            const GatewayWelcome& engine, std::uint64_t drawn_seed) {
  constexpr std::uint32_t kDefaultTokens = 16;  // OpenAI's for text completions
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    return prepare(request.options, {*ids, ids->size()}, "prompt", kDefaultTokens, engine,
                   drawn_seed);
  }
  Result<EncodedPrompt> prompt =
      model.encode_prompt(std::get<std::string>(request.prompt), prompt_tokens_max(engine));
  if (!prompt.ok()) return invalid("prompt", "prompt cannot be written in the model's tokens.");
  return prepare(request.options, std::move(prompt).value(), "prompt", kDefaultTokens, engine,
                 drawn_seed);
}

namespace {

Prepared prepare_parsed(const ChatRequest& request, const PrepareInput& input,
                        const TextModel& model) {
  return prepare_chat(request, model, input.engine, input.drawn_seed);
}

Prepared prepare_parsed(const CompletionRequest& request, const PrepareInput& input,
                        const TextModel& model) {
  return prepare_completion(request, model, input.engine, input.drawn_seed);
}

template <class Request>
Prepared prepare_if_parsed(const Result<Request>& parsed, const PrepareInput& input,
                           const TextModel& model) {
  if (!parsed.ok()) return api_error(parsed.error());
  const std::string& name = parsed->options.model;
  if (!name.empty() && name != input.model_name) {
    return api_error(Error{ErrorCode::not_found, "model", "This model is not served here."});
  }
  Prepared prepared = prepare_parsed(*parsed, input, model);
  if (auto* plan = std::get_if<GenerationPlan>(&prepared)) plan->head.kind = input.kind;
  return prepared;
}

}  // namespace

Prepared prepare_body(const PrepareInput& input, const TextModel& model) {
  return input.kind == ReplyKind::chat
             ? prepare_if_parsed(parse_chat_request(input.body), input, model)
             : prepare_if_parsed(parse_completion_request(input.body), input, model);
}

}  // namespace copse
