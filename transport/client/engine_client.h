#pragma once
// The gateway's side of the link to the coordinator, as an actor: the HTTP gateway and the command
// line's generate and chat hold one. Everything happens on the loop's thread.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "transport/actor/actor.h"

namespace copse {

// Receives what the engine says of the requests it was submitted with. Exactly one of on_finished,
// on_refused and on_lost ends each request; it may be destroyed afterwards.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void on_tokens(const Tokens& tokens) = 0;
  virtual void on_finished(const RequestFinished& finished) = 0;
  virtual void on_refused(const RequestRefused& refused) = 0;
  // The coordinator is gone, or its stream had a gap: nothing more will come.
  virtual void on_lost(RequestId request) = 0;
  // Tokens messages that wait for a slow client; told to the coordinator as credit.
  virtual std::uint32_t backlog() const { return 0; }
};

class EngineClient {
 public:
  using Receives =
      MessageList<GatewayWelcome, RequestRefused, Tokens, RequestFinished, EngineStatus>;

  EngineClient(Link& link, const Clock& clock) : link_(link), clock_(clock) {}

  // Sends the request under a new id, which is returned; submit.request is ignored. The handler is
  // never called from within. unavailable: no coordinator; resource_exhausted: the link is full.
  Result<RequestId> submit(Submit submit, std::shared_ptr<StreamHandler> handler);
  // Idempotent; on_finished still comes. `delivered` is what the client got of it.
  void cancel(RequestId request, std::uint32_t delivered, FinishReason reason);

  // From memory, never by asking. Nothing until the coordinator was first heard.
  const std::optional<GatewayWelcome>& welcome() const { return welcome_; }
  const std::optional<EngineStatus>& status() const { return status_; }
  bool connected() const { return coordinator_.has_value(); }
  std::uint64_t broken_streams() const { return broken_streams_; }

  void on(const PeerId& from, const GatewayWelcome& welcome);
  void on(const PeerId& from, const RequestRefused& refused);
  void on(const PeerId& from, const Tokens& tokens);
  void on(const PeerId& from, const RequestFinished& finished);
  void on(const PeerId& from, const EngineStatus& status);
  void on_peer_lost(const PeerId& peer);
  void on_tick(Instant now);

 private:
  struct Stream {
    std::shared_ptr<StreamHandler> handler;
    std::uint32_t received = 0;    // tokens: the next message's index
    bool broken = false;           // ended for its handler; the coordinator is being told
    std::optional<Cancel> cancel;  // asked for
    bool cancel_sent = false;
  };
  void heard(const PeerId& from);
  void send_cancel(Stream& stream);
  void send_heartbeat();
  void register_again();

  Link& link_;
  const Clock& clock_;
  std::optional<PeerId> coordinator_;
  Instant last_heard_{};
  Instant next_beat_{};
  bool registering_ = false;  // on this connection
  std::optional<GatewayWelcome> welcome_;
  std::optional<EngineStatus> status_;
  std::map<RequestId, Stream> streams_;
  RequestId next_request_ = 1;
  std::uint64_t broken_streams_ = 0;
};

}  // namespace copse
