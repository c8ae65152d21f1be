#pragma once
// How the ranks of one tensor-parallel group add and gather in device memory, in the order of a
// stream and capturable into a graph. collective.h is the same for host memory. Every rank makes
// the same calls in the same order with the same sizes.
//
// A call returns the error of its launch; what goes wrong later is status()'s to tell. After any
// error the communicator is finished, and graphs that hold its calls must be dropped.
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"

struct CUstream_st;

namespace copse {

class DeviceCollective {
 public:
  using Stream = CUstream_st*;

  virtual ~DeviceCollective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // In place, elementwise over ranks: every rank ends with the same bits.
  virtual Status all_reduce_sum(float* values, std::size_t count, Stream stream) = 0;
  virtual Status all_reduce_sum(Bf16* values, std::size_t count, Stream stream) = 0;
  virtual Status all_reduce_sum(std::uint64_t* values, std::size_t count, Stream stream) = 0;
  // all: [world_size][bytes]; rank r's stand at r * bytes. One rank may pass the same memory twice.
  virtual Status all_gather(const void* mine, void* all, std::size_t bytes, Stream stream) = 0;

  // Errors that came after a launch, from any thread.
  virtual Status status() = 0;
  // From any thread, more than once: kernels that wait for peers end.
  virtual void abort() noexcept = 0;
};

}  // namespace copse
