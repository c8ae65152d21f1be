// The worker group's start: registration, load progress, the ready barrier, last words.
#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "coordinator/worker_group.h"

namespace copse {
namespace {

bool within(std::uint32_t value, std::uint32_t least, int most) {
  return value >= least && value <= static_cast<std::uint32_t>(most);
}

// What is computed from the bounds never overflows, and holds no more than limits.h allows.
bool can_be(const WorkerReady& bounds) {
  const bool tokens_known =
      std::all_of(bounds.end_tokens.begin(), bounds.end_tokens.end(), [&](TokenId token) {
        return token >= 0 && static_cast<std::uint32_t>(token) < bounds.vocabulary;
      });
  return tokens_known && within(bounds.slots, 1, limits::batch_sequences) &&
         within(bounds.pages, 1, limits::pages) &&
         within(bounds.context_tokens, 2, limits::sequence_tokens) &&
         within(bounds.vocabulary, 1, limits::vocabulary) &&
         within(bounds.draft_block, 0, limits::draft_block);
}

}  // namespace

// Why this worker is not of this group; none if it is welcome.
std::optional<std::string> WorkerGroup::refusal(const PeerId& from,
                                                const RegisterWorker& message) const {
  if (state_ != State::loading || message.epoch != epoch_) {
    return "epoch " + std::to_string(message.epoch) + " does not register now";
  }
  if (from.role != Role::worker || message.rank != from.rank || message.rank >= ranks_.size()) {
    return "rank " + std::to_string(message.rank) + " is not a rank of this group";
  }
  if (message.world_size != options_.world_size) {
    return "its world size is " + std::to_string(message.world_size) + ", not " +
           std::to_string(options_.world_size);
  }
  if (message.build != options_.build) {
    return "its build is " + message.build + ", not " + options_.build;
  }
  if (ranks_[message.rank].peer) return "its rank is registered";
  const std::int32_t started = spawner_.pid(message.rank);
  if (started != 0 && started != message.pid) {
    return "process " + std::to_string(message.pid) + " is not the one that was started";
  }
  return std::nullopt;
}

void WorkerGroup::on(const PeerId& from, const RegisterWorker& message) {
  if (const auto why = refusal(from, message)) {
    spdlog::warn("worker {} is refused: {}", to_string(from), *why);
    static_cast<void>(link_.send(from, Shutdown{epoch_}));
    link_.close(from);
    // Our own process of another build: the next would be of the same.
    const bool ours = message.rank < ranks_.size() && message.epoch == epoch_ &&
                      message.pid == spawner_.pid(message.rank) && message.pid != 0;
    if (ours && message.build != options_.build)
      fail("rank " + std::to_string(message.rank) + " is refused: " + *why, true);
    return;
  }
  Rank& rank = ranks_[message.rank];
  rank.peer = from;
  rank.status.pid = message.pid;
  rank.last_heard = clock_.now();
  if (link_.send(from, WorkerWelcome{epoch_}) != SendResult::ok) {
    fail("rank " + std::to_string(message.rank) + " left while it registered");
  }
}

void WorkerGroup::on(const PeerId& from, const LoadProgress& message) {
  Rank* rank = rank_of(from, message.epoch);
  if (rank == nullptr) return;
  rank->status.load_done = message.done;
  rank->status.load_total = message.total;
  const double share = message.total == 0
                           ? 0
                           : static_cast<double>(message.done) / static_cast<double>(message.total);
  if (!(share <= 1)) return;  // no part is more than the whole
  const int quarter = static_cast<int>(4 * share);
  if (rank->stage == message.stage && quarter == rank->logged_quarter) return;
  rank->stage = message.stage;
  rank->logged_quarter = quarter;
  spdlog::info("rank {} {} {:.0f} %", from.rank, message.stage, 100 * share);
}

void WorkerGroup::on(const PeerId& from, const WorkerReady& message) {
  Rank* rank = rank_of(from, message.epoch);
  if (rank == nullptr || state_ != State::loading) return;
  rank->bounds = message;
  rank->status.ready = true;
  rank->status.weight_bytes = message.weight_bytes;
  rank->status.sharded_bytes = message.sharded_bytes;
  rank->status.cache_bytes = message.cache_bytes;
  spdlog::info("rank {} is ready after {:.1f} s: {} slots, {} pages, context {}", from.rank,
               message.load_s, message.slots, message.pages, message.context_tokens);
  check_ready();
}

// The barrier: nothing is planned before the last rank is ready.
void WorkerGroup::check_ready() {
  const bool all =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.bounds; });
  if (!all) return;
  WorkerReady bounds = *ranks_[0].bounds;
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    const WorkerReady& other = *ranks_[rank].bounds;
    if (other.vocabulary != bounds.vocabulary || other.draft_block != bounds.draft_block ||
        other.end_tokens != bounds.end_tokens) {
      return fail("rank " + std::to_string(rank) + " has loaded another model than rank 0", true,
                  3);
    }
    bounds.slots = std::min(bounds.slots, other.slots);
    bounds.pages = std::min(bounds.pages, other.pages);
    bounds.context_tokens = std::min(bounds.context_tokens, other.context_tokens);
  }
  if (!can_be(bounds)) return fail("the workers report bounds that cannot be", true, 3);
  state_ = State::ready;
  spdlog::info("ready, epoch {}", epoch_);
  listener_.on_group_ready(bounds);
}

void WorkerGroup::check_load(Instant now) {
  if (state_ != State::loading) return;
  if (now - loading_since_ <= milliseconds(limits::load_hard_ms)) return;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].bounds) continue;
    return fail("rank " + std::to_string(rank) + " was not ready in " +
                std::to_string(limits::load_hard_ms / 1000) + " s");
  }
}

void WorkerGroup::on(const PeerId& from, const WorkerHeartbeat& message) {
  Rank* rank = rank_of(from, message.epoch);
  if (rank != nullptr) rank->running_ms = message.step_running ? message.running_ms : 0;
}

void WorkerGroup::on(const PeerId& from, const WorkerFailed& message) {
  if (rank_of(from, message.epoch) == nullptr) return;
  fail("rank " + std::to_string(from.rank) + ": " + message.cause, message.permanent,
       message.permanent ? 3 : 1);
}

}  // namespace copse
