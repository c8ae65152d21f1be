#pragma once
// HTTP bodies to validated requests. Size, depth and every number are checked before anything is
// kept; an error names the field. Unknown fields are ignored; known features that copse lacks
// are refused, since ignoring them would change what the answer means.
#include <string_view>

#include "base/result.h"
#include "gateway/openai/request.h"

namespace copse {

Result<ChatRequest> parse_chat_request(std::string_view body);
Result<CompletionRequest> parse_completion_request(std::string_view body);

}  // namespace copse
