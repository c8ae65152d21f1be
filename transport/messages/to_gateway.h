#pragma once
// coordinator -> gateway (the HTTP gateway, and the command line's generate and chat).
#include <cstdint>
#include <string>

#include "transport/messages/common.h"
#include "transport/messages/kind.h"

namespace copse {

// What a gateway must know to refuse what can never be served. Sent on registration and again
// whenever the group becomes ready.
struct GatewayWelcome {
  static constexpr Kind kKind = Kind::gateway_welcome;
  static constexpr OnOverflow kOnOverflow = OnOverflow::close_peer;
  std::uint32_t context_tokens = 0;
  std::uint32_t vocabulary = 0;
  EndTokens end_tokens;
  std::uint32_t draft_block = 0;  // 0: no drafter is loaded
  bool operator==(const GatewayWelcome&) const = default;
  static constexpr auto fields() {
    using S = GatewayWelcome;
    return std::tuple{field("context_tokens", &S::context_tokens),
                      field("vocabulary", &S::vocabulary), field("end_tokens", &S::end_tokens),
                      field("draft_block", &S::draft_block)};
  }
};

enum class RefusalKind : std::uint8_t {
  invalid = 0,      // 400: the field is named
  too_long = 1,     // 400 context_length_exceeded
  queue_full = 2,   // 429
  unavailable = 3,  // 503: loading, recovering for too long, draining
};
inline constexpr RefusalKind kLastRefusalKind = RefusalKind::unavailable;

struct RequestRefused {
  static constexpr Kind kKind = Kind::request_refused;
  static constexpr OnOverflow kOnOverflow = OnOverflow::close_peer;
  RequestId request = 0;
  RefusalKind kind = RefusalKind::invalid;
  std::string at;  // the request field at fault; may be empty
  std::string message;
  std::uint32_t retry_after_s = 0;
  bool operator==(const RequestRefused&) const = default;
  static constexpr auto fields() {
    using S = RequestRefused;
    return std::tuple{field("request", &S::request), field("kind", &S::kind), field("at", &S::at),
                      field("message", &S::message), field("retry_after_s", &S::retry_after_s)};
  }
};

// New tokens of one request. `index` is the position of the first among its generated tokens: a
// stream without gaps has index == tokens received so far, also over a restart of the workers.
struct Tokens {
  static constexpr Kind kKind = Kind::tokens;
  static constexpr OnOverflow kOnOverflow = OnOverflow::pause_sequence;
  RequestId request = 0;
  std::uint32_t index = 0;
  Bounded<TokenId, limits::draft_block + 1> tokens;
  std::uint16_t draft_nodes = 0;  // of the round that gave them; 0 in a plain step
  bool round = false;             // false for the prefill's own token
  bool operator==(const Tokens&) const = default;
  static constexpr auto fields() {
    using S = Tokens;
    return std::tuple{field("request", &S::request), field("index", &S::index),
                      field("tokens", &S::tokens), field("draft_nodes", &S::draft_nodes),
                      field("round", &S::round)};
  }
};

// How drafting went for one request, in delivered tokens alone (what an end token or max_tokens cut
// off is not counted) and, beside it, in untruncated walks.
struct DraftSummary {
  DraftMode mode = DraftMode::none;  // as asked for; automatic if the server chose per step
  std::uint16_t node_budget = 0;     // of the last round that drafted
  std::uint32_t rounds = 0;          // decode steps of this request that delivered a token
  std::uint32_t round_tokens = 0;    // tokens delivered by those rounds, bonus counted
  Bounded<std::uint32_t, limits::draft_block>
      accepted_by_position;                   // delivered, per draft position
  Bounded<std::uint16_t, 4096> walk_lengths;  // per round, untruncated; the first 4096
  bool operator==(const DraftSummary&) const = default;
  static constexpr auto fields() {
    using S = DraftSummary;
    return std::tuple{field("mode", &S::mode),
                      field("node_budget", &S::node_budget),
                      field("rounds", &S::rounds),
                      field("round_tokens", &S::round_tokens),
                      field("accepted_by_position", &S::accepted_by_position),
                      field("walk_lengths", &S::walk_lengths)};
  }
};

// The last message of a request, exactly one, unless it was refused.
struct RequestFinished {
  static constexpr Kind kKind = Kind::request_finished;
  static constexpr OnOverflow kOnOverflow = OnOverflow::close_peer;
  RequestId request = 0;
  FinishReason reason = FinishReason::none;
  std::uint32_t generated_tokens = 0;
  DraftSummary draft;
  float queue_s = 0;    // from Submit to the first plan that names it
  float prefill_s = 0;  // from there to the first token
  float decode_s = 0;   // from there to the last
  std::string error;    // with FinishReason::error
  bool operator==(const RequestFinished&) const = default;
  static constexpr auto fields() {
    using S = RequestFinished;
    return std::tuple{field("request", &S::request),
                      field("reason", &S::reason),
                      field("generated_tokens", &S::generated_tokens),
                      field("draft", &S::draft),
                      field("queue_s", &S::queue_s),
                      field("prefill_s", &S::prefill_s),
                      field("decode_s", &S::decode_s),
                      field("error", &S::error)};
  }
};

enum class GroupState : std::uint8_t {
  loading = 0,
  ready = 1,
  recovering = 2,
  draining = 3,
  failed = 4
};
inline constexpr GroupState kLastGroupState = GroupState::failed;

struct RankStatus {
  std::int32_t pid = 0;
  std::uint64_t load_done = 0;  // bytes
  std::uint64_t load_total = 0;
  bool ready = false;
  std::uint64_t weight_bytes = 0;
  std::uint64_t sharded_bytes = 0;
  std::uint64_t cache_bytes = 0;
  StepId last_step = 0;
  StepTiming last_timing;
  TimingTotals total_timing;
  bool operator==(const RankStatus&) const = default;
  static constexpr auto fields() {
    using S = RankStatus;
    return std::tuple{field("pid", &S::pid),
                      field("load_done", &S::load_done),
                      field("load_total", &S::load_total),
                      field("ready", &S::ready),
                      field("weight_bytes", &S::weight_bytes),
                      field("sharded_bytes", &S::sharded_bytes),
                      field("cache_bytes", &S::cache_bytes),
                      field("last_step", &S::last_step),
                      field("last_timing", &S::last_timing),
                      field("total_timing", &S::total_timing)};
  }
};

// The whole of what /health and /metrics say of the engine: sent every heartbeat and on each change
// of state, so that the gateway answers from memory and never waits for the engine.
struct EngineStatus {
  static constexpr Kind kKind = Kind::engine_status;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;
  GroupState state = GroupState::loading;
  std::uint32_t epoch = 0;
  std::string cause;  // of the last restart: rank and reason
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t pages_used = 0;
  std::uint32_t pages_total = 0;
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;  // delivered
  std::uint64_t rounds = 0;            // rounds that drafted
  std::uint64_t draft_nodes = 0;
  std::uint64_t accepted_tokens = 0;  // delivered draft tokens, bonus not counted
  Bounded<std::uint64_t, limits::draft_block> accepted_by_position;
  std::uint64_t restarts = 0;
  std::uint64_t stale_messages = 0;
  std::string draft_reason;      // why the policy chose what it chose last
  std::uint64_t control_us = 0;  // coordinator CPU in all steps
  Bounded<RankStatus, limits::world_size> ranks;
  bool operator==(const EngineStatus&) const = default;
  static constexpr auto fields() {
    using S = EngineStatus;
    return std::tuple{field("state", &S::state),
                      field("epoch", &S::epoch),
                      field("cause", &S::cause),
                      field("running", &S::running),
                      field("waiting", &S::waiting),
                      field("pages_used", &S::pages_used),
                      field("pages_total", &S::pages_total),
                      field("steps", &S::steps),
                      field("prompt_tokens", &S::prompt_tokens),
                      field("generated_tokens", &S::generated_tokens),
                      field("rounds", &S::rounds),
                      field("draft_nodes", &S::draft_nodes),
                      field("accepted_tokens", &S::accepted_tokens),
                      field("accepted_by_position", &S::accepted_by_position),
                      field("restarts", &S::restarts),
                      field("stale_messages", &S::stale_messages),
                      field("draft_reason", &S::draft_reason),
                      field("control_us", &S::control_us),
                      field("ranks", &S::ranks)};
  }
};

}  // namespace copse
