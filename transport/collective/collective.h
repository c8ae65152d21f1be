#pragma once
// Steps 4-7: how the ranks of one tensor-parallel group add, gather and agree. One interface,
// several transports: `local` (one rank) and `shm` (processes of one host) here; NCCL and Gloo
// implement the same. Every rank must make the same calls in the same order with the same sizes.
//
// Errors: a lost or aborted peer is an Error{aborted or deadline} within a bounded time. After any
// error the communicator is finished and buffers hold partial data: nothing of that step may be
// kept.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bf16.h"
#include "base/result.h"

namespace copse {

// Counted since the start of the communicator, for the step's time line.
struct CollectiveStats {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;   // payload of this rank
  std::int64_t wall_ns = 0;  // inside calls, waiting included
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // In place. Adds elementwise over ranks as a fixed binary tree in rank order,
  // ((0+1)+(2+3))+((4+5)+(6+7)): every rank ends with the same bits (docs/decisions/0002).
  virtual Status all_reduce_sum(std::span<float> values) = 0;
  // Added in float32 by the same tree, rounded to nearest even once at the end.
  virtual Status all_reduce_sum(std::span<Bf16> values) = 0;
  // Order-free (integers wrap): histograms of exact top-p and top-k.
  virtual Status all_reduce_sum(std::span<std::uint64_t> values) = 0;

  // all.size() == mine.size() * world_size(); rank r's bytes stand at r * mine.size().
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual Status broadcast(std::span<std::byte> values, int root) = 0;
  virtual Status barrier() = 0;

  // From any thread, at any time, more than once: calls that wait return Error{aborted}, on all
  // ranks that share the transport.
  virtual void abort() noexcept = 0;

  virtual CollectiveStats stats() const = 0;
};

}  // namespace copse
