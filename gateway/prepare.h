#pragma once
// A validated request against the model and the engine: tokens, limits, and the Submit to send.
#include <string>
#include <variant>
#include <vector>

#include "gateway/openai/api_error.h"
#include "gateway/openai/request.h"
#include "gateway/openai/response.h"
#include "gateway/text_model.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"

namespace copse {

struct GenerationPlan {
  ReplyHead head;
  Submit submit;  // of the first choice; the others differ in sampling.choice alone
  std::uint32_t choices = 1;
  std::vector<std::string> stop;
  std::vector<TokenId> end_tokens;  // whose text is not part of the answer
  bool stream = false;
};

using Prepared = std::variant<GenerationPlan, ApiError>;

// What the answer to a body depends on, before the engine is asked.
struct PrepareInput {
  ReplyKind kind = ReplyKind::chat;
  std::string body;
  std::string model_name;  // the one that is served
  GatewayWelcome engine;
  std::uint64_t drawn_seed = 0;
};
// Parses, renders, encodes and checks. Takes long for a long body, and may run on any thread: it
// uses nothing but its arguments. plan.head has its kind; the rest is the caller's to fill.
Prepared prepare_body(const PrepareInput& input, const TextModel& model);

// Encodes and checks what depends on the engine: vocabulary and context. `drawn_seed` is used where
// the request names none. plan.head is the caller's to fill.
Prepared prepare_chat(const ChatRequest& request, const TextModel& model,
                      const GatewayWelcome& engine, std::uint64_t drawn_seed);
Prepared prepare_completion(const CompletionRequest& request, const TextModel& model,
                            const GatewayWelcome& engine, std::uint64_t drawn_seed);

}  // namespace copse
