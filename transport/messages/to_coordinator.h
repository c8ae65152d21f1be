#pragma once
// worker -> coordinator and gateway -> coordinator.
#include <cstdint>
#include <string>

#include "transport/messages/common.h"
#include "transport/messages/kind.h"

namespace copse {

// --- from workers -------------------------------------------------------------------------------

// First message of a worker. A build or world size that is not the coordinator's is refused with
// both named; a rank that is already registered in this epoch is refused.
struct RegisterWorker {
  static constexpr Kind kKind = Kind::register_worker;
  static constexpr OnOverflow kOnOverflow = OnOverflow::refuse;
  std::uint32_t epoch = 0;
  std::uint16_t rank = 0;
  std::uint16_t world_size = 0;
  std::int32_t pid = 0;
  std::string build;  // version and protocol: equal strings run together
  bool operator==(const RegisterWorker&) const = default;
  static constexpr auto fields() {
    using S = RegisterWorker;
    return std::tuple{field("epoch", &S::epoch), field("rank", &S::rank),
                      field("world_size", &S::world_size), field("pid", &S::pid),
                      field("build", &S::build)};
  }
};

struct LoadProgress {
  static constexpr Kind kKind = Kind::load_progress;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;
  std::uint32_t epoch = 0;
  std::string stage;  // "weights", "drafter", "warm-up"
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  bool operator==(const LoadProgress&) const = default;
  static constexpr auto fields() {
    using S = LoadProgress;
    return std::tuple{field("epoch", &S::epoch), field("stage", &S::stage), field("done", &S::done),
                      field("total", &S::total)};
  }
};

// One row of the cost table measured at start: a decode step of one sequence.
struct StepCost {
  std::uint16_t nodes = 0;  // draft nodes besides the root; 0 is a plain step
  float step_us = 0;
  bool operator==(const StepCost&) const = default;
  static constexpr auto fields() {
    return std::tuple{field("nodes", &StepCost::nodes), field("step_us", &StepCost::step_us)};
  }
};

// Loaded, warmed up, collectives joined. What the model allows; equal on all ranks but for bytes.
struct WorkerReady {
  static constexpr Kind kKind = Kind::worker_ready;
  static constexpr OnOverflow kOnOverflow = OnOverflow::end_epoch;
  std::uint32_t epoch = 0;
  std::uint32_t slots = 0;
  std::uint32_t pages = 0;           // of the one pool
  std::uint32_t context_tokens = 0;  // longest sequence: the model's, or what the pool holds
  std::uint32_t vocabulary = 0;
  std::uint32_t draft_block = 0;    // drafter's block size, bonus included; 0: no drafter
  std::uint64_t weight_bytes = 0;   // this rank's shard
  std::uint64_t sharded_bytes = 0;  // of those, what is split over ranks
  std::uint64_t cache_bytes = 0;
  float load_s = 0;
  EndTokens end_tokens;         // of generation_config.json
  Bounded<StepCost, 32> costs;  // ascending in nodes
  bool operator==(const WorkerReady&) const = default;
  static constexpr auto fields() {
    using S = WorkerReady;
    return std::tuple{field("epoch", &S::epoch),
                      field("slots", &S::slots),
                      field("pages", &S::pages),
                      field("context_tokens", &S::context_tokens),
                      field("vocabulary", &S::vocabulary),
                      field("draft_block", &S::draft_block),
                      field("weight_bytes", &S::weight_bytes),
                      field("sharded_bytes", &S::sharded_bytes),
                      field("cache_bytes", &S::cache_bytes),
                      field("load_s", &S::load_s),
                      field("end_tokens", &S::end_tokens),
                      field("costs", &S::costs)};
  }
};

// What one entry of a plan did. `tokens` is filled by rank 0 alone: the digest speaks for the
// others.
struct SlotResult {
  std::uint16_t slot = 0;
  std::uint32_t generation = 0;
  // H(previous digest of the slot, plan bytes read, tree tokens and parents, accepted path, bonus,
  // new length): chained, so drift of held state shows, not only of this step.
  Digest digest = 0;
  std::uint32_t length = 0;       // committed tokens afterwards, bonus excluded
  std::uint16_t draft_nodes = 0;  // nodes verified besides the root
  std::uint16_t walk_length =
      0;  // accepted nodes with the root, so >= 1 in a round; 0 in a prefill
  // New tokens for the client, the bonus last: cut at an end token (itself included) and at
  // remaining_tokens. Empty for a prefill chunk that is not the last, and for a done slot.
  Bounded<TokenId, limits::draft_block + 1> tokens;
  FinishReason finish = FinishReason::none;  // stop, length or error (logits not finite)
  bool operator==(const SlotResult&) const = default;
  static constexpr auto fields() {
    using S = SlotResult;
    return std::tuple{field("slot", &S::slot),
                      field("generation", &S::generation),
                      field("digest", &S::digest),
                      field("length", &S::length),
                      field("draft_nodes", &S::draft_nodes),
                      field("walk_length", &S::walk_length),
                      field("tokens", &S::tokens),
                      field("finish", &S::finish)};
  }
};

// The answer to one StepPlan: one result per prefill chunk and decode entry, in that order.
struct StepResult {
  static constexpr Kind kKind = Kind::step_result;
  static constexpr OnOverflow kOnOverflow = OnOverflow::end_epoch;
  std::uint32_t epoch = 0;
  StepId step = 0;
  Bounded<SlotResult, 2 * limits::batch_sequences> slots;
  StepTiming timing;
  bool operator==(const StepResult&) const = default;
  static constexpr auto fields() {
    using S = StepResult;
    return std::tuple{field("epoch", &S::epoch), field("step", &S::step), field("slots", &S::slots),
                      field("timing", &S::timing)};
  }
};

// Proves that the worker works, not only that it lives.
struct WorkerHeartbeat {
  static constexpr Kind kKind = Kind::worker_heartbeat;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;
  std::uint32_t epoch = 0;
  StepId last_step_done = 0;
  bool step_running = false;
  std::uint32_t running_ms = 0;  // how long the running step has run
  bool operator==(const WorkerHeartbeat&) const = default;
  static constexpr auto fields() {
    using S = WorkerHeartbeat;
    return std::tuple{field("epoch", &S::epoch), field("last_step_done", &S::last_step_done),
                      field("step_running", &S::step_running), field("running_ms", &S::running_ms)};
  }
};

// The worker cannot go on: its group will be restarted. It exits after sending this.
struct WorkerFailed {
  static constexpr Kind kKind = Kind::worker_failed;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;  // its death says the same
  std::uint32_t epoch = 0;
  bool permanent = false;  // a bad model or flag: a restart would fail the same way
  std::string cause;
  bool operator==(const WorkerFailed&) const = default;
  static constexpr auto fields() {
    using S = WorkerFailed;
    return std::tuple{field("epoch", &S::epoch), field("permanent", &S::permanent),
                      field("cause", &S::cause)};
  }
};

// --- from gateways ------------------------------------------------------------------------------

struct RegisterGateway {
  static constexpr Kind kKind = Kind::register_gateway;
  static constexpr OnOverflow kOnOverflow = OnOverflow::refuse;
  std::string build;
  bool operator==(const RegisterGateway&) const = default;
  static constexpr auto fields() { return std::tuple{field("build", &RegisterGateway::build)}; }
};

// One sequence to continue. Already validated by the gateway; the coordinator checks again what
// depends on it (vocabulary, context, pool) and answers RequestRefused or Tokens.
struct Submit {
  static constexpr Kind kKind = Kind::submit;
  static constexpr OnOverflow kOnOverflow = OnOverflow::refuse;
  RequestId request = 0;  // unique per gateway incarnation
  Bounded<TokenId, limits::sequence_tokens> prompt;
  SamplingParams sampling;
  std::uint32_t max_tokens = 0;  // >= 1
  std::uint32_t min_tokens = 0;
  bool ignore_end = false;
  EndTokens stop_tokens;  // besides the model's own end tokens
  DraftMode draft = DraftMode::automatic;
  std::uint16_t node_budget = 0;  // with tree and chain; 0: the server's default
  bool operator==(const Submit&) const = default;
  static constexpr auto fields() {
    using S = Submit;
    return std::tuple{field("request", &S::request),         field("prompt", &S::prompt),
                      field("sampling", &S::sampling),       field("max_tokens", &S::max_tokens),
                      field("min_tokens", &S::min_tokens),   field("ignore_end", &S::ignore_end),
                      field("stop_tokens", &S::stop_tokens), field("draft", &S::draft),
                      field("node_budget", &S::node_budget)};
  }
};

// The client is gone, or a stop string matched. Idempotent; answered by RequestFinished.
struct Cancel {
  static constexpr Kind kKind = Kind::cancel;
  static constexpr OnOverflow kOnOverflow = OnOverflow::close_peer;
  RequestId request = 0;
  std::uint32_t delivered_tokens = 0;         // what the client got: metrics count these
  FinishReason reason = FinishReason::abort;  // abort, or stop when a stop string matched
  bool operator==(const Cancel&) const = default;
  static constexpr auto fields() {
    using S = Cancel;
    return std::tuple{field("request", &S::request),
                      field("delivered_tokens", &S::delivered_tokens), field("reason", &S::reason)};
  }
};

// Credit of one stream: how many Tokens messages of it wait in the gateway for a slow client.
struct StreamBacklog {
  RequestId request = 0;
  std::uint32_t events = 0;
  bool operator==(const StreamBacklog&) const = default;
  static constexpr auto fields() {
    return std::tuple{field("request", &StreamBacklog::request),
                      field("events", &StreamBacklog::events)};
  }
};

// Lists only streams whose backlog is above a quarter of limits::stream_outbox_events; a stream at
// the limit is not scheduled until a later heartbeat lists it lower or not at all.
struct GatewayHeartbeat {
  static constexpr Kind kKind = Kind::gateway_heartbeat;
  static constexpr OnOverflow kOnOverflow = OnOverflow::drop;
  Bounded<StreamBacklog, 1024> backlogs;
  bool operator==(const GatewayHeartbeat&) const = default;
  static constexpr auto fields() {
    return std::tuple{field("backlogs", &GatewayHeartbeat::backlogs)};
  }
};

}  // namespace copse
