#pragma once
// Gateways of the simulated host and the clients behind them: they know every right answer, and
// write down each wrong one.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/testing/oracle_device.h"
#include "transport/actor/sim.h"
#include "transport/client/engine_client.h"

namespace copse {

// What went wrong, in words; empty is a pass.
using Violations = std::vector<std::string>;

class SimStream final : public StreamHandler {
 public:
  SimStream(const OracleModel& model, Submit request, const Clock& clock, Violations& violations);

  void on_tokens(const Tokens& tokens) override;
  void on_finished(const RequestFinished& finished) override;
  void on_refused(const RequestRefused& refused) override;
  void on_lost(RequestId request) override;
  std::uint32_t backlog() const override { return unread_; }

  const Submit& request() const { return request_; }
  std::uint32_t received() const { return static_cast<std::uint32_t>(got_.size()); }
  bool open() const { return !ended_; }
  bool whole() const { return whole_; }
  std::string name() const;

  // False: events pile up in the gateway.
  void set_reading(bool reading);

  RequestId id = 0;
  bool may_be_lost = false;  // its gateway was cut off or stopped
  bool engine_may_fail = false;
  bool too_long = false;  // it can never fit, and must be refused
  std::optional<Instant> cancelled;

 private:
  void wrong(const std::string& what);
  void end();

  OracleModel::Answer answer_;
  Submit request_;
  const Clock& clock_;
  Violations& violations_;
  std::vector<TokenId> got_;
  bool reading_ = true;
  std::uint32_t unread_ = 0;
  bool ended_ = false;
  bool whole_ = false;  // it ended by itself with the right answer
};

class SimGateway {
 public:
  SimGateway(SimWorld& world, const OracleModel& model, Violations& violations);

  // False: the client knows of no engine.
  bool submit(Submit request, bool too_long);
  void cancel(SimStream& stream);
  void crash();
  void disconnect();
  void pause(Duration time);
  // Any stream, of now or later, may be lost or end with an error.
  void excuse_everything();

  bool alive() const { return alive_; }
  bool connected() const { return client_->connected(); }
  SimNode node() const { return node_; }
  const std::vector<std::shared_ptr<SimStream>>& streams() const { return streams_; }
  std::size_t open() const;
  // Cancelled streams that were not ended in time; gaps that the client saw.
  void check(Instant now);

 private:
  void excuse_losses();

  SimWorld& world_;
  const OracleModel& model_;
  Violations& violations_;
  SimNode node_;
  std::unique_ptr<EngineClient> client_;
  std::vector<std::shared_ptr<SimStream>> streams_;
  bool alive_ = true;
  bool engine_may_fail_ = false;
  Instant paused_until_{};
  Instant losses_until_{};  // streams that begin before this may be lost
};

}  // namespace copse
