#include "tests/sim/sim_run.h"

#include <algorithm>

#include "base/digest.h"
#include "base/limits.h"
#include "transport/messages/frame.h"

namespace copse {
namespace {

constexpr Duration kSafety = milliseconds(6000);  // how long faults happen
// Within which all must end afterwards; long streams through few slots take their time.
constexpr Duration kLiveness = milliseconds(120000);
constexpr Duration kLongLiveness = milliseconds(900000);
constexpr Duration kCheck = milliseconds(10);
// Gateways that are gone are noticed by their silence.
constexpr Duration kGatewaySilence = milliseconds(limits::heartbeat_timeout_ms + 700);

}  // namespace

OracleModel SimRun::model_of(Random& random) {
  OracleModel model;
  model.seed = random.next();
  model.vocabulary = static_cast<std::uint32_t>(8 + random.below(120));
  model.context_tokens = static_cast<std::uint32_t>(200 + random.below(700));
  model.pages = static_cast<std::uint32_t>(12 + random.below(40));
  model.slots = static_cast<std::uint32_t>(1 + random.below(8));
  model.draft_block = static_cast<std::uint32_t>(random.below(4) == 0 ? 0 : 2 + random.below(15));
  model.accept_percent = static_cast<std::uint32_t>(random.below(101));
  return model;
}

CoordinatorOptions SimRun::options_of(Random& random, int world_size) {
  CoordinatorOptions options;
  options.world_size = world_size;
  options.build = build_identity();
  options.scheduler.prefill_chunk = static_cast<int>(8 + random.below(200));
  options.scheduler.max_sequences = static_cast<int>(1 + random.below(8));
  options.scheduler.draft = static_cast<DraftMode>(random.below(4));
  options.scheduler.node_budget = static_cast<int>(1 + random.below(30));
  return options;
}

SimRun::SimRun(std::uint64_t seed)
    : random_(seed * 0x9E3779B97F4A7C15u + 1),
      model_(model_of(random_)),
      world_size_(1 << below(one_in(4) ? 4 : 3)),
      chaotic_(one_in(6)),
      world_(seed),
      node_(world_.add_node({Role::coordinator, 0, 1 + below(1u << 30)})),
      group_(world_, world_size_, model_, milliseconds(2 + static_cast<std::int64_t>(below(12)))),
      coordinator_(options_of(random_, world_size_), world_.link(node_), group_, world_.clock()),
      long_streams_(one_in(8)) {
  group_.set_coordinator(node_);
  world_.attach(node_, coordinator_);
  const std::uint64_t gateways = 1 + below(3);
  for (std::uint64_t i = 0; i < gateways; ++i) {
    gateways_.push_back(std::make_unique<SimGateway>(world_, model_, violations_));
  }
}

void SimRun::violation(const std::string& what) {
  if (violations_.size() < 8) violations_.push_back(what);
}

SimGateway* SimRun::any_gateway() {
  SimGateway* gateway = gateways_[below(gateways_.size())].get();
  return gateway->alive() ? gateway : nullptr;
}

std::size_t SimRun::open() const {
  std::size_t count = 0;
  for (const auto& gateway : gateways_) {
    if (gateway->alive()) count += gateway->open();
  }
  return count;
}

// --- load ---------------------------------------------------------------------------------------

void SimRun::schedule_load() {
  const std::uint64_t requests = 5 + below(30);
  for (std::uint64_t i = 0; i < requests; ++i) {
    const Duration at = milliseconds(300) + soon(kSafety / milliseconds(1));
    const std::uint64_t burst = one_in(10) ? 1 + below(12) : 1;
    for (std::uint64_t k = 0; k < burst; ++k) world_.after(at, [this] { submit_one(); });
  }
  if (long_streams_) {
    for (int i = 0; i < 3; ++i) world_.after(soon(5000), [this] { slow_reader(); });
  }
}

void SimRun::submit_one() {
  SimGateway* gateway = any_gateway();
  if (gateway == nullptr) return;
  Submit request;
  const std::uint64_t prompt = 1 + below(one_in(4) ? 180 : 60);
  for (std::uint64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(below(model_.vocabulary)));
  }
  request.max_tokens = static_cast<std::uint32_t>(1 + below(long_streams_ ? 600 : 50));
  request.ignore_end = one_in(3) || long_streams_;
  request.min_tokens = one_in(2) ? static_cast<std::uint32_t>(below(40)) : 0;
  if (one_in(2)) {
    request.sampling.temperature = 0.8f;
    request.sampling.seed = random_.next();
  }
  const auto mode = model_.draft_block < 2 ? (one_in(2) ? 0 : 3) : below(4);
  request.draft = static_cast<DraftMode>(mode);
  request.node_budget = static_cast<std::uint16_t>(one_in(2) ? 1 + below(40) : 0);
  if (mode == 0 || mode == 3) request.node_budget = 0;
  const std::uint64_t all = prompt + request.max_tokens;
  // The pool counts a draft more than the context does; near its edge both answers are right.
  const bool too_long = all + model_.draft_block > model_.context_tokens ||
                        all + model_.draft_block > model_.pages * std::uint64_t{64} - 64;
  if (!gateway->submit(request, too_long)) return;
  if (!one_in(6)) return;
  const auto stream = gateway->streams().back();
  world_.after(soon(800), [gateway, stream] {
    if (gateway->alive() && stream->open()) gateway->cancel(*stream);
  });
}

void SimRun::slow_reader() {
  SimGateway* gateway = any_gateway();
  if (gateway == nullptr || gateway->streams().empty()) return;
  const auto stream = gateway->streams()[below(gateway->streams().size())];
  stream->set_reading(false);
  world_.after(milliseconds(4000) + soon(6000), [stream] { stream->set_reading(true); });
}

// --- faults -------------------------------------------------------------------------------------

void SimRun::schedule_faults() {
  SimFaults faults;
  faults.delay_max = milliseconds(1 + static_cast<std::int64_t>(below(8)));
  faults.stall = one_in(2) ? 0 : 0.01 * static_cast<double>(below(100)) / 100;
  faults.duplicate = one_in(2) ? 0 : 0.05 * static_cast<double>(below(100)) / 100;
  if (chaotic_) {
    faults.disconnect = 0.0005 * static_cast<double>(below(4));
    faults.bit_flip = 0.0005 * static_cast<double>(below(4));
  }
  world_.set_faults(faults);
  // The third failure is the end: a group that must survive sees two.
  const std::uint64_t group = chaotic_ ? below(5) : below(3);
  for (std::uint64_t i = 0; i < group; ++i) {
    world_.after(milliseconds(100) + soon(5500), [this] { group_fault(); });
  }
  const std::uint64_t gateway = one_in(2) ? 0 : 1 + below(2);
  for (std::uint64_t i = 0; i < gateway; ++i) {
    world_.after(milliseconds(500) + soon(5000), [this] { gateway_fault(); });
  }
  for (int i = 0; i < 20; ++i) {
    world_.after(milliseconds(300 * (i + 1)), [this] { replay_stale(); });
  }
}

void SimRun::group_fault() {
  const auto rank = static_cast<int>(below(static_cast<std::uint64_t>(world_size_)));
  bool happened = false;
  switch (below(7)) {
    case 0:
    case 1:
      happened = group_.crash(rank);
      break;
    case 2:
      happened = group_.hang(rank);
      break;
    case 3:
      happened = group_.pause(rank, milliseconds(60000));
      break;
    case 4:
      happened = group_.disconnect(rank);
      break;
    // With one rank there is nobody to differ from.
    case 5:
      happened = world_size_ > 1 && group_.flip(rank, rank == 0);
      break;
    default:
      group_.pause(rank, milliseconds(1000));  // a second is nothing but latency
  }
  group_faults_ += happened ? 1 : 0;
}

void SimRun::gateway_fault() {
  SimGateway* gateway = any_gateway();
  if (gateway == nullptr) return;
  gateway_fault_at_ = world_.clock().now();
  switch (below(4)) {
    case 0:
      gateway->crash();
      gateways_.push_back(std::make_unique<SimGateway>(world_, model_, violations_));
      if (chaotic_) gateways_.back()->excuse_everything();
      break;
    case 1:
      gateway->disconnect();
      break;
    case 2:
      gateway->pause(milliseconds(900));
      break;
    default:
      gateway->pause(milliseconds(3500));
      gateway_fault_at_ += milliseconds(3500);
  }
}

// A sender of an epoch that is over speaks once more, past the link's own guard.
void SimRun::replay_stale() {
  const auto stale = group_.stale_results();
  if (stale.empty()) return;
  const SimGroup::Stale& one = stale[below(stale.size())];
  world_.after_on(node_, Duration(0), [this, one] { coordinator_.on(one.from, one.result); });
}

// --- checks -------------------------------------------------------------------------------------

void SimRun::check_always() {
  const Instant now = world_.clock().now();
  const Scheduler& scheduler = coordinator_.scheduler();
  const Status integrity = scheduler.check_integrity();
  if (!integrity.ok()) violation(describe(integrity.error()));
  // Those of a restart come back on top of a full queue.
  if (scheduler.waiting() > limits::queued_requests + limits::batch_sequences) {
    violation("the queue has no bound");
  }
  if (scheduler.plans_in_flight() > limits::plans_in_flight) violation("too many plans on the way");
  if (coordinator_.orphan_requests() > 0) violation("requests of a lost gateway go on");
  if (!chaotic_ && coordinator_.status().restarts > static_cast<std::uint64_t>(group_faults_)) {
    violation("a restart without a fault: " + coordinator_.status().cause);
  }
  for (const std::string& broken : group_.broken_plans()) violation(broken);
  for (const auto& gateway : gateways_) gateway->check(now);
  const auto living = std::count_if(gateways_.begin(), gateways_.end(),
                                    [](const auto& gateway) { return gateway->alive(); });
  const bool settled = !chaotic_ && now > gateway_fault_at_ + kGatewaySilence;
  if (settled && coordinator_.gateways() > static_cast<std::size_t>(living)) {
    violation("a lost gateway is still known");
  }
}

void SimRun::check_at_rest() {
  const EngineStatus status = coordinator_.status();
  if (open() > 0) violation(std::to_string(open()) + " requests never ended");
  if (status.state == GroupState::failed) {
    if (!chaotic_) violation("the group failed: " + status.cause);
    return;
  }
  if (status.state != GroupState::ready) violation("the group is not ready at rest");
  if (coordinator_.open_requests() != 0) violation("the coordinator keeps a request");
  if (status.pages_used != 0) violation("pages leak at rest");
  // Rank 0's wrong token would have been seen; a wrong digest must have ended its epoch.
  if (!chaotic_ && status.restarts < static_cast<std::uint64_t>(group_.flips_reported() > 0)) {
    violation("a wrong digest went unnoticed");
  }
}

SimOutcome SimRun::run() {
  coordinator_.start();
  schedule_load();
  schedule_faults();
  if (chaotic_) {
    for (const auto& gateway : gateways_) gateway->excuse_everything();
  }
  const auto watch = [&](Duration time, const auto& done) {
    const Instant end = world_.clock().now() + time;
    while (world_.clock().now() < end && !done() && violations_.empty()) {
      world_.run_for(kCheck);
      check_always();
    }
  };
  watch(kSafety + milliseconds(500), [] { return false; });
  world_.set_faults({});
  const auto at_rest = [&] {
    const GroupState state = coordinator_.status().state;
    const bool steady = state == GroupState::ready || state == GroupState::failed;
    return steady && open() == 0 && coordinator_.open_requests() == 0 &&
           coordinator_.scheduler().plans_in_flight() == 0;
  };
  watch(long_streams_ ? kLongLiveness : kLiveness, at_rest);
  if (violations_.empty()) check_at_rest();

  SimOutcome outcome;
  outcome.violations = violations_;
  DigestChain chain(world_.event_hash());
  for (const auto& gateway : gateways_) {
    for (const auto& stream : gateway->streams()) {
      outcome.whole += stream->whole() ? 1 : 0;
      chain.add(stream->received());
    }
  }
  outcome.hash = chain.value();
  outcome.restarts = coordinator_.status().restarts;
  if (!violations_.empty()) outcome.trace = world_.trace();
  return outcome;
}

}  // namespace copse
