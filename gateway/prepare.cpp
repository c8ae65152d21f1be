#include "gateway/prepare.h"

#include <algorithm>
#include <utility>

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

Prepared prepare(const GenerateOptions& options, std::vector<TokenId> prompt, const char* field,
                 std::uint32_t default_tokens, const GatewayWelcome& engine,
                 std::uint64_t drawn_seed) {
  if (prompt.empty()) return invalid(field, std::string(field) + " is empty.");
  if (prompt.size() + 1 > std::min<std::size_t>(engine.context_tokens, limits::sequence_tokens)) {
    return context_error(prompt.size(), engine.context_tokens, field);
  }
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
  Result<std::vector<TokenId>> prompt = model.encode_chat(request.messages);
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
    return prepare(request.options, *ids, "prompt", kDefaultTokens, engine, drawn_seed);
  }
  Result<std::vector<TokenId>> prompt = model.encode_prompt(std::get<std::string>(request.prompt));
  if (!prompt.ok()) return invalid("prompt", "prompt cannot be written in the model's tokens.");
  return prepare(request.options, std::move(prompt).value(), "prompt", kDefaultTokens, engine,
                 drawn_seed);
}

}  // namespace copse
