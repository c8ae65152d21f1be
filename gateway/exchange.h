#pragma once
// The way back to one client for one request: either one response, or a stream of events.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "gateway/http_message.h"

namespace copse {

enum class WriteResult : std::uint8_t {
  ok,
  full,    // limits::stream_outbox_events wait already: the event was not taken
  closed,  // the client is gone
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // The whole answer. Nothing else may be called afterwards.
  virtual void respond(HttpResponse response) = 0;

  // Sends status 200 and the headers of a stream of server-sent events.
  virtual void begin_stream(const HttpHeaders& headers) = 0;
  // One event, complete with its blank line.
  virtual WriteResult write(std::string event) = 0;
  virtual void end_stream() = 0;
  // Events that wait for the client.
  virtual std::size_t queued_events() const = 0;

  // Called at most once, when the client goes away before the end; never from within a call above.
  virtual void when_closed(std::function<void()> callback) = 0;
  // Called each time there is room again after a write that was full.
  virtual void when_room(std::function<void()> callback) = 0;
};

}  // namespace copse
