#pragma once
// Steps 4-7 between the processes of one host. The supervisor creates a region (a sealed memfd: it
// has no name, and goes when its last user goes), each rank inherits the descriptor and joins. One
// region serves one epoch: after any error it is finished, and the next epoch gets a new one.
//
// A call costs one synchronisation. Each rank copies its part into its own slot and climbs the tree
// of docs/decisions/0002: of two ranks that meet at a node the later adds the earlier one's part to
// its own and goes on, so no rank waits before its part is handed over. Who passes the root holds
// the sum, wakes the others, and they copy it out of its slot.
#include <cstddef>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "transport/collective/collective.h"

namespace copse {

struct ShmOptions {
  int world_size = 1;                   // 1, 2, 4 or 8
  std::size_t slot_bytes = 256u << 10;  // of one rank; longer payloads go in pieces. 64 .. 64 MiB,
                                        // a multiple of 64
};

struct ShmJoin {
  Duration timeout = milliseconds(10'000);  // of one call: a peer that is later is lost
  // How long to spin. Not given: a little if each rank can have a core, else not at all.
  std::optional<Duration> spin = std::nullopt;
  // Keep the joining thread on its rank's share of the cores. Ranks that sleep and wake together
  // are otherwise often woken onto one core while another idles (README.md has figures). Threads
  // that it starts later inherit the share; those of before keep theirs.
  bool pin = false;
};

// Bytes of the region, all of them allocated when it is created.
std::size_t shm_collective_bytes(const ShmOptions& options);

// A descriptor, close-on-exec, that the caller owns: a supervisor hands it to a rank by dup2 (which
// clears the flag) or by fork. Errors: invalid_argument, resource_exhausted (no memory), io.
Result<int> create_shm_region(const ShmOptions& options);

// A mapping of a region. The supervisor keeps one to abort its ranks; a rank may use one too.
class ShmRegion {
 public:
  // Maps the region; the descriptor stays the caller's and may be closed afterwards.
  // Errors: malformed (not a region of this version, or one that could still change its size), io.
  static Result<ShmRegion> attach(int fd);

  // Errors: invalid_argument (rank or world size do not fit the region, or the rank has joined
  // before: by then the group's order of calls cannot be known). The region may go before the
  // collective does. Does not wait for the others: a rank that never joins shows in the first call.
  Result<std::unique_ptr<Collective>> join(int rank, int world_size, const ShmJoin& options = {});

  // Every waiting and every later call, on all ranks, returns Error{aborted}. Any thread or
  // process.
  void abort() noexcept;

  class Mapping;

 private:
  explicit ShmRegion(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
  std::shared_ptr<Mapping> mapping_;
};

// attach and join in one: what a rank calls. One collective is used by one thread at a time, but
// for abort().
Result<std::unique_ptr<Collective>> join_shm(int fd, int rank, int world_size,
                                             const ShmJoin& options = {});

}  // namespace copse
