#pragma once
// One generation request from its Submits to its last byte: n choices, streamed or whole. What a
// slow client has not taken waits here as text; nothing is sent before the engine has accepted.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gateway/choice_text.h"
#include "gateway/exchange.h"
#include "gateway/metrics.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/response.h"
#include "gateway/prepare.h"
#include "transport/client/engine_client.h"

namespace copse {

class Generation final : public StreamHandler, public std::enable_shared_from_this<Generation> {
 public:
  struct World {
    EngineClient& engine;
    const TextModel& model;
    Metrics& metrics;
    const Clock& clock;
  };
  Generation(World world, GenerationPlan plan, std::string request_id,
             std::shared_ptr<Exchange> exchange, Instant arrived);

  // Submits every choice, or answers with the error.
  void start();
  // Keep-alive comments while nothing else is sent.
  void on_tick(Instant now);
  // The server will not finish this one: an error event, or a 503.
  void end_by_server();
  bool ended() const { return ended_; }

  void on_tokens(const Tokens& tokens) override;
  void on_finished(const RequestFinished& finished) override;
  void on_refused(const RequestRefused& refused) override;
  void on_lost(RequestId request) override;
  std::uint32_t backlog() const override;

 private:
  struct Choice {
    explicit Choice(ChoiceText choice_text) : text(std::move(choice_text)) {}
    RequestId request = 0;
    ChoiceText text;
    std::string unsent;  // streamed: text not yet written
    std::uint32_t unsent_messages = 0;
    std::uint32_t received = 0;  // tokens, those behind a stop string too
    Instant last_tokens{};
    ChoiceAnswer answer;
    Timings timings;
    std::uint64_t rounds = 0;        // that delivered a token
    std::uint64_t round_tokens = 0;  // delivered by them
    std::uint64_t accepted = 0;      // of those, draft tokens
    bool open = true;                // the engine has not ended it
    bool role_sent = false;
    bool finish_sent = false;
  };

  Choice* find(RequestId request);
  void take(Choice& choice, const Tokens& tokens, std::uint32_t skip);
  void close_choice(Choice& choice, const RequestFinished& finished);
  void cancel_open_choices(FinishReason reason);
  void client_gone();
  void fail(const ApiError& error);
  void begin_stream();
  void pump();
  bool pump_choice(std::size_t index);
  bool send(std::string event);
  void respond_whole();
  void end(const char* how);
  Usage usage() const;
  Timings timings() const;

  World world_;
  GenerationPlan plan_;
  std::string request_id_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<Choice> choices_;
  Instant arrived_;
  Instant last_write_;
  std::optional<ApiError> failure_;  // of a stream that has begun: its last event
  bool stream_begun_ = false;
  bool usage_sent_ = false;
  bool ended_ = false;
};

}  // namespace copse
