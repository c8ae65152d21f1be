#pragma once
// The gateway's world in memory, for tests and fuzz targets: an engine that answers when told to, a
// model whose tokens are bytes, and a client that records.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/engine.h"
#include "gateway/exchange.h"
#include "gateway/text_model.h"

namespace copse {

// Token ids 0 to 255 are bytes; kEnd ends a text and reads "<end>"; the vocabulary has 300.
class ByteModel final : public TextModel {
 public:
  static constexpr TokenId kBegin = 256;
  static constexpr TokenId kEnd = 257;

  Result<std::vector<TokenId>> encode_prompt(std::string_view text) const override {
    std::vector<TokenId> ids{kBegin};
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::vector<TokenId>> encode_chat(
      const std::vector<ChatMessage>& messages) const override {
    std::string text;
    for (const ChatMessage& message : messages) text += message.role + ":" + message.content + "\n";
    return encode_prompt(text);
  }
  std::unique_ptr<TokenDecoder> decoder() const override { return std::make_unique<Decoder>(); }

 private:
  // Holds a character back until its bytes are complete; for well-formed sequences of two bytes.
  class Decoder final : public TokenDecoder {
   public:
    std::string push(TokenId token) override {
      if (token == kEnd) return finish() + "<end>";
      held_ += static_cast<char>(token);
      if (held_.size() == 1 && (static_cast<unsigned char>(held_[0]) & 0xE0) == 0xC0) return {};
      return std::exchange(held_, {});
    }
    std::string finish() override {
      return std::exchange(held_, {}).empty() ? std::string() : std::string("\xEF\xBF\xBD");
    }

   private:
    std::string held_;
  };
};

class FakeEngine final : public Engine {
 public:
  struct Sent {
    Submit submit;
    std::shared_ptr<SequenceHandler> handler;  // null once ended
    std::uint32_t given = 0;
  };
  struct Cancelled {
    RequestId request;
    std::uint32_t delivered;
    FinishReason reason;
  };

  FakeEngine() {
    welcome_.emplace();
    welcome_->context_tokens = 4096;
    welcome_->vocabulary = 300;
    welcome_->end_tokens = {ByteModel::kEnd};
    welcome_->draft_block = 16;
    status_.emplace();
    status_->state = GroupState::ready;
  }

  Result<RequestId> submit(Submit submit, std::shared_ptr<SequenceHandler> handler) override {
    if (!connected_) return Error{ErrorCode::unavailable, "", "no link"};
    const RequestId id = ++last_;
    submit.request = id;
    sent[id] = {std::move(submit), std::move(handler), 0};
    return id;
  }
  void cancel(RequestId request, std::uint32_t delivered, FinishReason reason) override {
    cancelled.push_back({request, delivered, reason});
  }
  const std::optional<GatewayWelcome>& welcome() const override { return welcome_; }
  const std::optional<EngineStatus>& status() const override { return status_; }
  bool connected() const override { return connected_; }

  // One Tokens message; with `round`, as of a round with as many draft nodes as tokens.
  void give(RequestId id, const std::string& bytes, bool round = true) {
    std::vector<TokenId> ids;
    for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
    give_ids(id, ids, round);
  }
  void give_ids(RequestId id, const std::vector<TokenId>& ids, bool round = true) {
    Tokens tokens;
    tokens.request = id;
    tokens.index = sent.at(id).given;
    tokens.tokens.assign(ids.begin(), ids.end());
    tokens.round = round;
    tokens.draft_nodes = static_cast<std::uint16_t>(ids.size());
    sent.at(id).given += static_cast<std::uint32_t>(ids.size());
    if (const auto handler = sent.at(id).handler) handler->on_tokens(tokens);
  }
  void finish(RequestId id, FinishReason reason, const std::string& error = "") {
    RequestFinished finished;
    finished.request = id;
    finished.reason = reason;
    finished.generated_tokens = sent.at(id).given;
    finished.prefill_s = 0.25f;
    finished.decode_s = 0.5f;
    finished.error = error;
    finished.draft.rounds = 2;
    finished.draft.round_tokens = 6;
    finished.draft.accepted_by_position = {2, 1, 1};
    if (const auto handler = std::exchange(sent.at(id).handler, nullptr)) {
      handler->on_finished(finished);
    }
  }
  void refuse(RequestId id, RefusalKind kind, std::uint32_t retry_after_s = 0) {
    RequestRefused refused;
    refused.request = id;
    refused.kind = kind;
    refused.message = "internal detail /run/secret";
    refused.retry_after_s = retry_after_s;
    if (const auto handler = std::exchange(sent.at(id).handler, nullptr)) {
      handler->on_refused(refused);
    }
  }
  void lose() {
    connected_ = false;
    for (auto& [id, one] : sent) {
      if (const auto handler = std::exchange(one.handler, nullptr)) handler->on_lost(id);
    }
  }

  std::map<RequestId, Sent> sent;
  std::vector<Cancelled> cancelled;
  std::optional<GatewayWelcome> welcome_;
  std::optional<EngineStatus> status_;
  bool connected_ = true;

 private:
  RequestId last_ = 0;
};

// Records what one client gets.
class FakeExchange final : public Exchange {
 public:
  void respond(HttpResponse answer) override {
    response = std::move(answer);
    drop();
  }
  void begin_stream(const HttpHeaders& fields) override { headers = fields; }
  WriteResult write(std::string event) override {
    if (gone) return WriteResult::closed;
    if (events.size() - taken >= room) return WriteResult::full;
    events.push_back(std::move(event));
    return WriteResult::ok;
  }
  void end_stream() override {
    ended = true;
    drop();
  }
  std::size_t queued_events() const override {
    return room == kNoLimit ? 0 : events.size() - taken;
  }
  void when_closed(std::function<void()> callback) override { closed_ = std::move(callback); }
  void when_room(std::function<void()> callback) override { room_ = std::move(callback); }

  void leave() {
    gone = true;
    const auto closed = std::exchange(closed_, nullptr);
    const auto room_callback = std::exchange(room_, nullptr);
    if (closed) closed();
  }
  // The client takes everything that waits.
  void take_all() {
    taken = events.size();
    if (const auto callback = room_) callback();
  }

  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
  std::optional<HttpResponse> response;
  std::optional<HttpHeaders> headers;  // of a stream that has begun
  std::vector<std::string> events;
  std::size_t room = kNoLimit;
  std::size_t taken = 0;
  bool ended = false;
  bool gone = false;

 private:
  void drop() {
    const auto closed = std::exchange(closed_, nullptr);
    const auto room_callback = std::exchange(room_, nullptr);
  }
  std::function<void()> closed_;
  std::function<void()> room_;
};

}  // namespace copse
