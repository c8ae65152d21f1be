#pragma once
// The gateway's world in memory, for tests and fuzz targets: an engine that answers when told to, a
// model whose tokens are bytes, and a client that records.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/exchange.h"
#include "gateway/text_model.h"
#include "transport/client/engine_client.h"

namespace copse {

// Token ids 0 to 255 are bytes; kEnd ends a text and reads "<end>"; the vocabulary has 300.
class ByteModel final : public TextModel {
 public:
  static constexpr TokenId kBegin = 256;
  static constexpr TokenId kEnd = 257;

  Result<EncodedPrompt> encode_prompt(std::string_view text,
                                      std::size_t tokens_max) const override {
    if (on_encode) on_encode();
    if (text.size() + 1 > tokens_max) return EncodedPrompt{{}, text.size() + 1};
    std::vector<TokenId> ids{kBegin};
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return EncodedPrompt{ids, ids.size()};
  }
  Result<EncodedPrompt> encode_chat(const std::vector<ChatMessage>& messages,
                                    std::size_t tokens_max) const override {
    std::string text;
    for (const ChatMessage& message : messages) text += message.role + ":" + message.content + "\n";
    return encode_prompt(text, tokens_max);
  }
  std::function<void()> on_encode;  // on the thread that encodes
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

// The coordinator's end of the link: what the real client sends is decoded here, and what this says
// goes through the client's own checks.
class FakeEngine final : public Link {
 public:
  explicit FakeEngine(const Clock& clock) : client(*this, clock) {
    GatewayWelcome welcome;
    welcome.context_tokens = 4096;
    welcome.vocabulary = 300;
    welcome.end_tokens = {ByteModel::kEnd};
    welcome.draft_block = 16;
    client.on(kPeer, welcome);
    set_state(GroupState::ready);
  }
  void set_state(GroupState state) {
    EngineStatus status;
    status.state = state;
    client.on(kPeer, status);
  }

  // One Tokens message; with `round`, as of a round with as many draft nodes as tokens.
  void give(RequestId id, const std::string& bytes, bool round = true) {
    std::vector<TokenId> ids;
    for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
    give_ids(id, ids, round);
  }
  void give_ids(RequestId id, const std::vector<TokenId>& ids, bool round = true) {
    Tokens tokens;
    tokens.request = id;
    tokens.index = given[id];
    tokens.tokens.assign(ids.begin(), ids.end());
    tokens.round = round;
    tokens.draft_nodes = static_cast<std::uint16_t>(ids.size());
    given[id] += static_cast<std::uint32_t>(ids.size());
    client.on(kPeer, tokens);
  }
  void finish(RequestId id, FinishReason reason, const std::string& error = "") {
    RequestFinished finished;
    finished.request = id;
    finished.reason = reason;
    finished.generated_tokens = given[id];
    finished.prefill_s = 0.25f;
    finished.decode_s = 0.5f;
    finished.error = error;
    finished.draft.rounds = 2;
    finished.draft.round_tokens = 6;
    finished.draft.accepted_by_position = {2, 1, 1};
    client.on(kPeer, finished);
  }
  void refuse(RequestId id, RefusalKind kind, std::uint32_t retry_after_s = 0) {
    RequestRefused refused;
    refused.request = id;
    refused.kind = kind;
    refused.message = "internal detail /run/secret";
    refused.retry_after_s = retry_after_s;
    client.on(kPeer, refused);
  }
  void lose() { client.on_peer_lost(kPeer); }

  void set_epoch(std::uint32_t) override {}
  void close(const PeerId&) override {}
  std::uint64_t stale_messages() const override { return 0; }

  EngineClient client;
  std::map<RequestId, Submit> sent;
  std::map<RequestId, std::uint32_t> given;  // tokens
  std::vector<Cancel> cancelled;
  GatewayHeartbeat heartbeat;  // the last one
  SendResult answer = SendResult::ok;

 protected:
  SendResult send_body(const PeerId&, Kind kind, std::vector<std::byte> body) override {
    if (answer != SendResult::ok) return answer;
    if (kind == Kind::submit) {
      Submit submit = decode<Submit>(body).value();
      sent[submit.request] = submit;
      if (on_submit) on_submit(submit.request);
    } else if (kind == Kind::cancel) {
      cancelled.push_back(decode<Cancel>(body).value());
    } else if (kind == Kind::gateway_heartbeat) {
      heartbeat = decode<GatewayHeartbeat>(body).value();
    }
    return SendResult::ok;
  }

 public:
  std::function<void(RequestId)> on_submit;  // may not answer from within

 private:
  static constexpr PeerId kPeer{Role::coordinator, 0, 1};
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
