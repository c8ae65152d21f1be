#pragma once
// What the gateway needs of the engine: one sequence per submit, its tokens, its end, and the state
// of the whole as last reported. The process uses the link to the coordinator (client_engine.h),
// the tests an engine in memory. Everything happens on the gateway's one thread.
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "base/types.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"

namespace copse {

// The receiver of what the engine says about one or more submitted sequences. Exactly one of
// on_finished, on_refused and on_lost ends each of them.
class SequenceHandler {
 public:
  virtual ~SequenceHandler() = default;
  virtual void on_tokens(const Tokens& tokens) = 0;
  virtual void on_finished(const RequestFinished& finished) = 0;
  virtual void on_refused(const RequestRefused& refused) = 0;
  // The link broke: nothing more will come for this request.
  virtual void on_lost(RequestId request) = 0;
  // Tokens messages that wait here for a slow client: the coordinator's credit.
  virtual std::uint32_t backlog() const = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Sends the sequence under a new request id, which is returned; submit.request is ignored. The
  // handler is not called from within. unavailable: no link; resource_exhausted: the link is full.
  virtual Result<RequestId> submit(Submit submit, std::shared_ptr<SequenceHandler> handler) = 0;
  // Idempotent; on_finished still comes. `delivered` is what the client got of it.
  virtual void cancel(RequestId request, std::uint32_t delivered, FinishReason reason) = 0;
  // From memory, never by asking. Nothing until the coordinator was first heard.
  virtual const std::optional<GatewayWelcome>& welcome() const = 0;
  virtual const std::optional<EngineStatus>& status() const = 0;
  virtual bool connected() const = 0;
};

}  // namespace copse
