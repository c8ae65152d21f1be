#pragma once
// The few integers that everything speaks of. Strong where mixing them up would be silent.
#include <compare>
#include <cstdint>

namespace copse {

using TokenId = std::int32_t;
using PageId = std::int32_t;
using RequestId = std::uint64_t;  // given by a gateway, unique per gateway incarnation
using StepId = std::uint64_t;     // grows by one per plan, over epochs
using Digest = std::uint64_t;

// Grows by one with each start of the worker group; messages of another epoch are stale.
struct Epoch {
  std::uint32_t value = 0;
  auto operator<=>(const Epoch&) const = default;
};

// A sequence's place in the worker's state, and the count of how often it was given out: a plan
// entry whose generation is not the slot's is refused.
struct SlotId {
  std::uint16_t index = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const SlotId&) const = default;
};

}  // namespace copse
