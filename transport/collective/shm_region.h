#pragma once
// What stands in the shared mapping, and how its words are used. Private to shm*.cpp.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/limits.h"
#include "transport/collective/futex.h"
#include "transport/collective/shm.h"

namespace copse {

inline constexpr std::size_t cache_line = 64;
inline constexpr std::uint32_t shm_magic = 0x48534343;  // "CCSH"
inline constexpr std::uint32_t shm_version = 1;

enum class ShmOp : std::uint32_t { none, sum_float, sum_bf16, sum_u64, gather, broadcast, barrier };

// What a rank believes the group is doing. Written before it climbs, compared by who meets it.
struct alignas(cache_line) ShmCall {
  std::atomic<std::uint32_t> sequence{0};
  std::atomic<std::uint32_t> op{0};     // ShmOp
  std::atomic<std::uint32_t> root{0};   // of a broadcast
  std::atomic<std::uint64_t> bytes{0};  // of the whole payload, not of this piece
};

struct alignas(cache_line) ShmRank {
  std::atomic<std::uint32_t> joined{0};
};

// Who came first to a node of the tree: (sequence << 3 | rank), left by an exchange.
struct alignas(cache_line) ShmNode {
  std::atomic<std::uint32_t> first{0};
};

// Sequences are compared by equality among neighbours only, so they may wrap at 28 bits.
inline constexpr std::uint32_t rank_bits = 3;
inline constexpr std::uint32_t rank_mask = (1u << rank_bits) - 1;
inline constexpr std::uint32_t sequence_mask = (1u << 28) - 1;
inline constexpr std::uint32_t poison_bit = 1u << 31;
static_assert(limits::world_size <= 1 << rank_bits);

inline constexpr std::uint32_t tag(std::uint32_t sequence, int rank) {
  return ((sequence & sequence_mask) << rank_bits) | static_cast<std::uint32_t>(rank);
}

// Why the region is finished: packed so that one exchange decides it, whatever happens to the
// writer.
struct ShmFailure {
  ErrorCode code = ErrorCode::internal;
  int first_rank = no_rank;  // deadline: who is missing; internal: the two that differ
  int second_rank = no_rank;
  std::uint32_t parity = 0;  // of the sequence of the call that failed: whose ShmCalls to read
  static constexpr int no_rank = 255;
};

struct ShmHeader {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::int32_t world_size = 0;
  std::uint64_t slot_bytes = 0;

  // The last finished call and the rank that holds its result; poison_bit once the region is
  // finished for good. The word that everybody waits on.
  alignas(cache_line) FutexWord done{0};
  alignas(cache_line) std::atomic<std::uint32_t> sleepers{0};
  alignas(cache_line) std::atomic<std::uint32_t> failure{0};  // packed ShmFailure, 0: none

  std::array<ShmRank, limits::world_size> ranks;
  // Two of everything: a rank may be in call k+1 while another still copies out of call k; nobody
  // reaches k+2 before all have left k.
  std::array<std::array<ShmCall, limits::world_size>, 2> calls;
  std::array<ShmNode, limits::world_size> nodes;  // in the order of a heap, root at 1
};

class ShmRegion::Mapping {
 public:
  Mapping(void* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ShmHeader& header() const { return *static_cast<ShmHeader*>(base_); }
  std::byte* slot(std::uint32_t sequence, int rank) const;

  // The first failure of a region is the one that everybody reports.
  void fail(ShmFailure failure) noexcept;
  ShmFailure failure() const;

 private:
  void* base_;
  std::size_t bytes_;
};

}  // namespace copse
