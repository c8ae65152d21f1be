#include "coordinator/worker_group.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "coordinator/digest_vote.h"
#include "scheduler/planted_bugs.h"

namespace copse {
namespace {

// Exit codes after which a restart would end the same way: bad flags, a bad model, no memory for
// it, a program that cannot be executed.
bool is_permanent(const RankExit& exit) {
  if (exit.signalled) return false;
  return exit.status == 2 || exit.status == 3 || exit.status == 4 || exit.status == 126 ||
         exit.status == 127;
}

std::string describe_exit(const RankExit& exit) {
  return "rank " + std::to_string(exit.rank) +
         (exit.signalled ? " was killed by signal " : " exited with status ") +
         std::to_string(exit.status);
}

// The worker says why it exits just before it does: its last words may arrive after the exit.
constexpr Duration kLastWords = milliseconds(60);
// A spawn that failed (no processes, no descriptors) is not repeated at once.
constexpr Duration kSpawnBackoff = milliseconds(1000);
constexpr Duration kShutdownGrace = milliseconds(3000);

}  // namespace

WorkerGroup::WorkerGroup(WorkerGroupOptions options, Link& link, Spawner& spawner,
                         const Clock& clock, GroupListener& listener)
    : options_(std::move(options)),
      link_(link),
      spawner_(spawner),
      clock_(clock),
      listener_(listener) {
  CHECK(options_.world_size >= 1 && options_.world_size <= limits::world_size);
}

void WorkerGroup::start() {
  ++epoch_;
  link_.set_epoch(epoch_);
  spawn_next();
}

void WorkerGroup::spawn_next() {
  ranks_.assign(static_cast<std::size_t>(options_.world_size), {});
  pending_.clear();
  state_ = State::loading;
  loading_since_ = clock_.now();
  for (Rank& rank : ranks_) rank.last_heard = loading_since_;
  spdlog::info("starting {} workers, epoch {}", options_.world_size, epoch_);
  const Status spawned = spawner_.spawn(epoch_);
  if (spawned.ok()) return;
  spawn_not_before_ = clock_.now() + kSpawnBackoff;
  fail("the workers could not be started: " + describe(spawned.error()));
}

void WorkerGroup::fail(const std::string& cause, bool permanent, int exit_code) {
  if (state_ != State::loading && state_ != State::ready) return;
  cause_ = cause;
  lost_at_ = clock_.now();
  spdlog::error("epoch {} ends: {}", epoch_, cause);
  for (Rank& rank : ranks_) {
    if (rank.peer) link_.close(*rank.peer);
  }
  pending_.clear();
  spawner_.kill_all();
  failures_.push_back(lost_at_);
  while (lost_at_ - failures_.front() > milliseconds(limits::restart_window_ms)) {
    failures_.pop_front();
  }
  const bool often = failures_.size() >= limits::restarts_in_window;
  if (permanent || often) {
    state_ = State::failed;
    if (!permanent) cause_ += " (the third failure in ten minutes)";
    return listener_.on_group_failed(cause_, exit_code);
  }
  state_ = State::stopping;
  ++restarts_;
  ++epoch_;
  link_.set_epoch(epoch_);
  listener_.on_group_lost(cause_);
}

void WorkerGroup::shut_down() {
  if (state_ == State::failed || state_ == State::idle) return;
  state_ = State::shutting_down;
  shut_down_at_ = clock_.now();
  for (Rank& rank : ranks_) {
    if (rank.peer) static_cast<void>(link_.send(*rank.peer, Shutdown{epoch_}));
  }
  // A worker that has not registered yet has no ears.
  const bool all_hear =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.peer; });
  if (!all_hear) spawner_.kill_all();
}

void WorkerGroup::kill() {
  state_ = State::failed;
  spawner_.kill_all();
}

void WorkerGroup::send(const StepPlan& plan) {
  Pending pending;
  pending.step = plan.step;
  pending.prefills = !plan.prefill.empty();
  pending.since = clock_.now();
  pending.results.resize(ranks_.size());
  pending_.push_back(std::move(pending));
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const SendResult sent = link_.send(*ranks_[rank].peer, plan);
    if (sent == SendResult::ok) continue;
    const char* why = sent == SendResult::full ? " does not take plans" : " is disconnected";
    return fail("rank " + std::to_string(rank) + why);
  }
}

std::optional<StepResult> WorkerGroup::agreed(const PeerId& from, const StepResult& result) {
  Rank* rank = rank_of(from, result.epoch);
  if (rank == nullptr || state_ != State::ready) return std::nullopt;
  const auto index = static_cast<std::size_t>(from.rank);
  const auto pending = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const Pending& p) { return p.step == result.step; });
  if (pending == pending_.end() || pending->results[index]) {
    fail("rank " + std::to_string(index) + " answered a step that is not on the way");
    return std::nullopt;
  }
  rank->status.last_step = result.step;
  rank->status.last_timing = result.timing;
  rank->status.total_timing.add(result.timing);
  pending->results[index] = result;
  ++pending->reported;
  Pending& front = pending_.front();
  if (front.reported < options_.world_size) return std::nullopt;

  std::vector<std::uint64_t> signatures;
  std::uint32_t slowest_us = 0;
  for (const auto& each : front.results) {
    signatures.push_back(signature(*each));
    slowest_us = std::max(slowest_us, each->timing.total_us);
  }
  const std::vector<int> outside = dissenters(signatures);
  if (!outside.empty() && !planted(PlantedBug::digests_not_compared)) {
    fail("step " + std::to_string(front.step) + ": the digest of " + name_ranks(outside) +
         " differs from the others'");
    return std::nullopt;
  }
  StepResult agreed = *std::move(front.results[0]);
  agreed.timing.total_us = slowest_us;
  pending_.pop_front();
  if (!pending_.empty()) pending_.front().since = clock_.now();
  return agreed;
}

WorkerGroup::Rank* WorkerGroup::rank_of(const PeerId& from, std::uint32_t epoch) {
  if (planted(PlantedBug::no_epoch_check)) epoch = epoch_;
  if (epoch != epoch_ || from.rank >= ranks_.size()) return nullptr;
  Rank& rank = ranks_[from.rank];
  if (rank.peer != from && !planted(PlantedBug::no_epoch_check)) return nullptr;
  rank.last_heard = clock_.now();
  return &rank;
}

std::vector<RankStatus> WorkerGroup::ranks() const {
  std::vector<RankStatus> all;
  for (const Rank& rank : ranks_) all.push_back(rank.status);
  return all;
}

void WorkerGroup::on_peer_lost(const PeerId& peer) {
  if (peer.rank >= ranks_.size() || ranks_[peer.rank].peer != peer) return;
  // If it died, its exit status says more, and comes within a tick.
  Rank& rank = ranks_[peer.rank];
  if (!rank.lost && !rank.exit) rank.gone_at = clock_.now();
  rank.lost = true;
}

void WorkerGroup::on_worker_exit(const RankExit& exit) {
  if (exit.epoch != epoch_ || static_cast<std::size_t>(exit.rank) >= ranks_.size()) return;
  if (state_ != State::loading && state_ != State::ready) return;
  Rank& rank = ranks_[static_cast<std::size_t>(exit.rank)];
  if (!rank.lost) rank.gone_at = clock_.now();
  rank.exit = exit;
  if (exit.signalled) fail(describe_exit(exit));
}

void WorkerGroup::on_tick(Instant now) {
  if (state_ == State::stopping && spawner_.alive() == 0 && now >= spawn_not_before_) {
    spawn_next();
  }
  if (state_ == State::shutting_down && now - shut_down_at_ > kShutdownGrace) spawner_.kill_all();
  check_exits(now);
  check_silence(now);
  check_step(now);
  check_load(now);
}

void WorkerGroup::check_exits(Instant now) {
  if (state_ != State::loading && state_ != State::ready) return;
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    const Rank& rank = ranks_[index];
    if ((!rank.exit && !rank.lost) || now - rank.gone_at < kLastWords) continue;
    if (!rank.exit) return fail("rank " + std::to_string(index) + " is disconnected");
    const RankExit exit = *rank.exit;
    return fail(describe_exit(exit), is_permanent(exit), exit.status == 0 ? 1 : exit.status);
  }
}

void WorkerGroup::check_silence(Instant now) {
  if (state_ != State::loading && state_ != State::ready) return;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& each = ranks_[rank];
    if (!each.peer || now - each.last_heard <= milliseconds(limits::heartbeat_timeout_ms)) continue;
    return fail("rank " + std::to_string(rank) + " has been silent for " +
                std::to_string(limits::heartbeat_timeout_ms) + " ms");
  }
}

void WorkerGroup::check_step(Instant now) {
  if (state_ != State::ready || pending_.empty()) return;
  Pending& front = pending_.front();
  const auto hard = milliseconds(front.prefills ? limits::prefill_hard_ms : limits::step_hard_ms);
  const Duration age = now - front.since;
  if (age > hard) {
    return fail("step " + std::to_string(front.step) + " hangs: no answer from " +
                late_ranks(front));
  }
  if (age > milliseconds(limits::step_soft_ms) && !front.warned) {
    front.warned = true;
    spdlog::warn("step {} is late: no answer from {} after {} ms", front.step, late_ranks(front),
                 limits::step_soft_ms);
  }
}

// Who has not answered; if nobody has (they wait for each other), with how far each says it is.
std::string WorkerGroup::late_ranks(const Pending& pending) const {
  std::vector<int> late;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!pending.results[rank]) late.push_back(static_cast<int>(rank));
  }
  std::string text = name_ranks(late);
  if (late.size() < ranks_.size() || ranks_.size() == 1) return text;
  text += " (running for";
  for (const Rank& rank : ranks_) text += " " + std::to_string(rank.running_ms);
  return text + " ms)";
}

}  // namespace copse
