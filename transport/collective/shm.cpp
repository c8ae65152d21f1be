#include "transport/collective/shm.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "transport/collective/patience.h"
#include "transport/collective/placement.h"
#include "transport/collective/shm_region.h"
#include "transport/collective/tree_sum.h"

namespace copse {
namespace {

using Mapping = ShmRegion::Mapping;

// A sleeper looks up this often even if nobody wakes it.
constexpr Duration wait_slice = milliseconds(100);
constexpr Duration default_spin = std::chrono::microseconds(30);

Duration elapsed_now() {
  return SteadyClock().now().time_since_epoch();
}

std::string_view name_of(std::uint32_t op) {
  switch (static_cast<ShmOp>(op)) {
    case ShmOp::sum_float:
      return "all_reduce_sum(float)";
    case ShmOp::sum_bf16:
      return "all_reduce_sum(bf16)";
    case ShmOp::sum_u64:
      return "all_reduce_sum(uint64)";
    case ShmOp::gather:
      return "all_gather";
    case ShmOp::broadcast:
      return "broadcast";
    case ShmOp::barrier:
      return "barrier";
    case ShmOp::none:
      break;
  }
  return "no call";
}

void copy(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memmove(to, from.data(), from.size());
}

class ShmCollective final : public Collective {
 public:
  ShmCollective(std::shared_ptr<Mapping> mapping, int rank, Duration timeout, Duration spin)
      : mapping_(std::move(mapping)),
        shared_(mapping_->header()),
        slot_bytes_(shared_.slot_bytes),
        rank_(rank),
        world_size_(shared_.world_size),
        timeout_(timeout),
        patience_(spin) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  Status all_reduce_sum(std::span<float> values) override {
    return reduce(ShmOp::sum_float, values);
  }
  Status all_reduce_sum(std::span<std::uint64_t> values) override {
    return reduce(ShmOp::sum_u64, values);
  }
  Status all_reduce_sum(std::span<Bf16> values) override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  Status broadcast(std::span<std::byte> values, int root) override;
  Status barrier() override;

  void abort() noexcept override { mapping_->fail({ErrorCode::aborted}); }
  CollectiveStats stats() const override { return stats_; }

 private:
  struct Call {
    ShmOp op = ShmOp::none;
    std::size_t bytes = 0;
    int root = 0;
  };

  // Runs `piece(begin, count)` over pieces that fit a slot (once for an empty payload), and counts.
  template <class Piece>
  Status in_pieces(std::size_t count, std::size_t count_max, std::size_t bytes, Piece piece);
  template <class T>
  Status reduce(ShmOp op, std::span<T> values);

  // One synchronisation: the parts of this call stand in the slots; `add(rank)` adds that rank's
  // slot to mine, `finish()` runs on the last rank before the others go on. Returns that rank.
  template <class Add, class Finish>
  Result<int> meet(const Call& call, Add add, Finish finish);
  void announce(const Call& call);
  bool agrees_with(int other) const;
  Result<int> release();
  Result<int> wait_for_release();
  bool finished(std::uint32_t done) const {
    return done >> rank_bits == (sequence_ & sequence_mask);
  }
  ShmFailure lost_peer() const;
  Error error() const;

  std::byte* slot(int rank) const { return mapping_->slot(sequence_, rank); }
  template <class T>
  T* slot_as(int rank) const {
    return reinterpret_cast<T*>(slot(rank));
  }
  const ShmCall& call_of(int rank) const {
    return shared_.calls[sequence_ & 1u][static_cast<std::size_t>(rank)];
  }

  const std::shared_ptr<Mapping> mapping_;
  ShmHeader& shared_;
  const std::size_t slot_bytes_;
  const int rank_;
  const int world_size_;
  const Duration timeout_;
  Patience patience_;
  Duration started_{};  // the current call
  std::uint32_t sequence_ = 0;
  CollectiveStats stats_;
};

template <class Piece>
Status ShmCollective::in_pieces(std::size_t count, std::size_t count_max, std::size_t bytes,
                                Piece piece) {
  started_ = elapsed_now();
  std::size_t begin = 0;
  do {
    const std::size_t length = std::min(count - begin, count_max);
    COPSE_RETURN_IF_ERROR(piece(begin, length));
    begin += length;
  } while (begin < count);
  ++stats_.calls;
  stats_.bytes += bytes;
  stats_.wall_ns += (elapsed_now() - started_).count();
  return {};
}

template <class T>
Status ShmCollective::reduce(ShmOp op, std::span<T> values) {
  const Call call{op, values.size_bytes()};
  return in_pieces(
      values.size(), slot_bytes_ / sizeof(T), call.bytes,
      [&](std::size_t begin, std::size_t count) -> Status {
        ++sequence_;
        const std::span<T> part = values.subspan(begin, count);
        copy(slot(rank_), std::as_bytes(part));
        COPSE_TRY(
            const int winner,
            meet(
                call, [&](int other) { add_into(slot_as<T>(rank_), slot_as<T>(other), count); },
                [] {}));
        copy(reinterpret_cast<std::byte*>(part.data()), {slot(winner), part.size_bytes()});
        return {};
      });
}

Status ShmCollective::all_reduce_sum(std::span<Bf16> values) {
  const Call call{ShmOp::sum_bf16, values.size_bytes()};
  return in_pieces(
      values.size(), slot_bytes_ / sizeof(float), call.bytes,
      [&](std::size_t begin, std::size_t count) -> Status {
        ++sequence_;
        const std::span<Bf16> part = values.subspan(begin, count);
        widen(slot_as<float>(rank_), part.data(), count);
        const auto add = [&](int other) {
          add_into(slot_as<float>(rank_), slot_as<float>(other), count);
        };
        // The sum is rounded once, by the rank that has it; nobody reads its float32 any more.
        const auto finish = [&] {
          round_to_bf16(part.data(), slot_as<float>(rank_), count);
          copy(slot(rank_), std::as_bytes(part));
        };
        COPSE_TRY(const int winner, meet(call, add, finish));
        if (winner != rank_) {
          copy(reinterpret_cast<std::byte*>(part.data()), {slot(winner), part.size_bytes()});
        }
        return {};
      });
}

Status ShmCollective::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  CHECK(all.size() == mine.size() * static_cast<std::size_t>(world_size_));
  return in_pieces(
      mine.size(), slot_bytes_, mine.size(), [&](std::size_t begin, std::size_t count) -> Status {
        ++sequence_;
        copy(slot(rank_), mine.subspan(begin, count));
        COPSE_RETURN_IF_ERROR(meet(
            {ShmOp::gather, mine.size()}, [](int) {}, [] {}));
        for (int r = 0; r < world_size_; ++r) {
          copy(all.data() + static_cast<std::size_t>(r) * mine.size() + begin, {slot(r), count});
        }
        return {};
      });
}

Status ShmCollective::broadcast(std::span<std::byte> values, int root) {
  CHECK(root >= 0 && root < world_size_);
  return in_pieces(values.size(), slot_bytes_, values.size(),
                   [&](std::size_t begin, std::size_t count) -> Status {
                     ++sequence_;
                     const std::span<std::byte> part = values.subspan(begin, count);
                     if (rank_ == root) copy(slot(rank_), part);
                     COPSE_RETURN_IF_ERROR(meet(
                         {ShmOp::broadcast, values.size(), root}, [](int) {}, [] {}));
                     if (rank_ != root) copy(part.data(), {slot(root), count});
                     return {};
                   });
}

Status ShmCollective::barrier() {
  return in_pieces(0, 1, 0, [&](std::size_t, std::size_t) -> Status {
    ++sequence_;
    COPSE_RETURN_IF_ERROR(meet(
        {ShmOp::barrier}, [](int) {}, [] {}));
    return {};
  });
}

template <class Add, class Finish>
Result<int> ShmCollective::meet(const Call& call, Add add, Finish finish) {
  if (shared_.done.load(std::memory_order_acquire) & poison_bit) return error();
  announce(call);
  // Node of this rank's subtree at each height, numbered as a heap whose leaves are the ranks.
  const std::uint32_t mine = tag(sequence_, rank_);
  for (std::uint32_t node = static_cast<std::uint32_t>(world_size_ + rank_) / 2; node > 0;
       node /= 2) {
    const std::uint32_t first = shared_.nodes[node].first.exchange(mine, std::memory_order_acq_rel);
    if (first >> rank_bits != mine >> rank_bits) return wait_for_release();
    const int other = static_cast<int>(first & rank_mask);
    if (!agrees_with(other)) {
      mapping_->fail(
          {ErrorCode::internal, std::min(rank_, other), std::max(rank_, other), sequence_ & 1u});
      return error();
    }
    add(other);
  }
  finish();
  return release();
}

void ShmCollective::announce(const Call& call) {
  ShmCall& mine = shared_.calls[sequence_ & 1u][static_cast<std::size_t>(rank_)];
  mine.op.store(static_cast<std::uint32_t>(call.op), std::memory_order_relaxed);
  mine.root.store(static_cast<std::uint32_t>(call.root), std::memory_order_relaxed);
  mine.bytes.store(call.bytes, std::memory_order_relaxed);
  mine.sequence.store(sequence_, std::memory_order_relaxed);
}

bool ShmCollective::agrees_with(int other) const {
  const ShmCall& a = call_of(rank_);
  const ShmCall& b = call_of(other);
  return a.op.load(std::memory_order_relaxed) == b.op.load(std::memory_order_relaxed) &&
         a.root.load(std::memory_order_relaxed) == b.root.load(std::memory_order_relaxed) &&
         a.bytes.load(std::memory_order_relaxed) == b.bytes.load(std::memory_order_relaxed);
}

Result<int> ShmCollective::release() {
  // A failed region stays failed: only the word that the previous call left may be replaced.
  std::uint32_t before = shared_.done.load(std::memory_order_relaxed);
  do {
    if (before & poison_bit) return error();
  } while (!shared_.done.compare_exchange_weak(before, tag(sequence_, rank_)));
  // Sequentially consistent with a sleeper's count-then-look: one of the two sees the other.
  if (shared_.sleepers.load() > 0) futex_wake_all(shared_.done);
  return rank_;
}

Result<int> ShmCollective::wait_for_release() {
  const auto winner = [](std::uint32_t done) { return static_cast<int>(done & rank_mask); };
  std::uint32_t done = shared_.done.load(std::memory_order_acquire);
  if (!finished(done)) {
    patience_.wait([&] {
      done = shared_.done.load(std::memory_order_acquire);
      return finished(done) || (done & poison_bit) != 0;
    });
    done = shared_.done.load(std::memory_order_acquire);
  }
  while (!finished(done)) {
    if (done & poison_bit) return error();
    const Duration left = started_ + timeout_ - elapsed_now();
    if (left <= Duration{}) {
      mapping_->fail(lost_peer());
      return error();
    }
    shared_.sleepers.fetch_add(1);
    done = shared_.done.load();
    if (!finished(done) && !(done & poison_bit)) {
      futex_wait(shared_.done, done, std::min(left, wait_slice));
    }
    shared_.sleepers.fetch_sub(1);
    done = shared_.done.load(std::memory_order_acquire);
  }
  return winner(done);
}

ShmFailure ShmCollective::lost_peer() const {
  for (int r = 0; r < world_size_; ++r) {
    if (call_of(r).sequence.load(std::memory_order_relaxed) != sequence_) {
      return {ErrorCode::deadline, r};
    }
  }
  return {ErrorCode::deadline};
}

Error ShmCollective::error() const {
  const ShmFailure failure = mapping_->failure();
  const auto describe_call = [&](int rank) {
    const ShmCall& call = shared_.calls[failure.parity][static_cast<std::size_t>(rank)];
    return "rank " + std::to_string(rank) + " called " + std::string(name_of(call.op.load())) +
           " of " + std::to_string(call.bytes.load()) + " bytes";
  };
  std::string message = "the group was aborted";
  if (failure.code == ErrorCode::deadline) {
    message =
        failure.first_rank == ShmFailure::no_rank
            ? "a rank stopped inside a call"
            : "rank " + std::to_string(failure.first_rank) + " did not come to a call in time";
  } else if (failure.code == ErrorCode::internal) {
    message = "ranks disagree: " + describe_call(failure.first_rank) + ", " +
              describe_call(failure.second_rank);
  }
  return Error{failure.code, "collective", std::move(message)};
}

}  // namespace

Result<std::unique_ptr<Collective>> ShmRegion::join(int rank, int world_size,
                                                    const ShmJoin& options) {
  ShmHeader& shared = mapping_->header();
  if (world_size != shared.world_size) {
    return Error{ErrorCode::invalid_argument, "world_size", "is not that of the region"};
  }
  if (rank < 0 || rank >= world_size) {
    return Error{ErrorCode::invalid_argument, "rank", "must be from 0 to world_size - 1"};
  }
  if (shared.ranks[static_cast<std::size_t>(rank)].joined.exchange(1) != 0) {
    return Error{ErrorCode::invalid_argument, "rank", "has joined this region before"};
  }
  const std::vector<int> cores = usable_cores();
  const bool roomy = world_size <= static_cast<int>(cores.size());
  const Duration spin = options.spin.value_or(roomy ? default_spin : Duration{});
  if (options.pin) pin_rank(cores, rank, world_size);
  return std::unique_ptr<Collective>(
      std::make_unique<ShmCollective>(mapping_, rank, options.timeout, spin));
}

Result<std::unique_ptr<Collective>> join_shm(int fd, int rank, int world_size,
                                             const ShmJoin& options) {
  COPSE_TRY(ShmRegion region, ShmRegion::attach(fd));
  return region.join(rank, world_size, options);
}

}  // namespace copse
