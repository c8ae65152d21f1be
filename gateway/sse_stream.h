#pragma once
// Server-sent events (WHATWG HTML, section 9.2): one JSON object on one data line, a blank line.
#include <string>
#include <string_view>

#include "gateway/http_message.h"

namespace copse {

// `json` has no line breaks: dump_json without indent gives none.
std::string sse_event(std::string_view json);
std::string sse_done();        // data: [DONE]
std::string sse_keep_alive();  // a comment: clients ignore it, proxies see traffic
const HttpHeaders& sse_headers();

}  // namespace copse
