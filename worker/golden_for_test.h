#pragma once
// What the published reference code computed with the embedded pair, and requests for the same.
#include <string>
#include <vector>

#include "base/json.h"
#include "worker/round_for_test.h"

namespace copse::testing {

inline const Json& golden() {
  static const Json prompts = [] {
    JsonBounds bounds;
    bounds.bytes = 16u << 20;
    Result<Json> json = read_json_file("models/golden/generation.json", bounds);
    return json.ok() ? *json : Json::array();
  }();
  return prompts;
}

inline Request request_of(const Json& prompt, DraftMode mode, int budget) {
  Request request;
  request.prompt = prompt["prompt_ids"].get<std::vector<TokenId>>();
  // The reference delivers 96 tokens and checks its length before the bonus token.
  request.max_tokens = 96;
  request.mode = mode;
  request.budget = budget;
  return request;
}

}  // namespace copse::testing
