#include "gateway/sse_stream.h"

#include "base/check.h"

namespace copse {

std::string sse_event(std::string_view json) {
  CHECK(json.find_first_of("\r\n") == std::string_view::npos);
  std::string event = "data: ";
  event.append(json).append("\n\n");
  return event;
}

std::string sse_done() {
  return "data: [DONE]\n\n";
}

std::string sse_keep_alive() {
  return ": keep-alive\n\n";
}

const HttpHeaders& sse_headers() {
  // The last one tells nginx not to collect events into pages.
  static const HttpHeaders headers{{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return headers;
}

}  // namespace copse
