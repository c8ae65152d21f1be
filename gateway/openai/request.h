#pragma once
// The two generation requests after validation: every value is within its bounds. What depends on
// the engine (vocabulary, context) is checked when the request is prepared (prepare.h).
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/types.h"
#include "transport/messages/common.h"

namespace copse {

struct GenerateOptions {
  std::string model;  // empty: the served one
  std::uint32_t choices = 1;
  std::optional<std::uint32_t> max_tokens;
  std::uint32_t min_tokens = 0;
  float temperature = 1;  // 0: argmax
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;             // 0: off
  std::optional<std::uint64_t> seed;  // absent: the gateway draws one
  std::vector<std::string> stop;      // none of them empty
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  DraftMode draft = DraftMode::automatic;
  std::uint16_t draft_budget = 0;  // 0: the server's choice
};

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

struct ChatRequest {
  GenerateOptions options;
  std::vector<ChatMessage> messages;  // one or more
};

struct CompletionRequest {
  GenerateOptions options;
  std::variant<std::string, std::vector<TokenId>> prompt;
};

}  // namespace copse
