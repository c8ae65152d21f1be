#pragma once
// Step 8: whether all ranks did the same, and who did not.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/messages/to_coordinator.h"

namespace copse {

// What every rank must agree on of one step: all but tokens (rank 0 alone reports them) and timing.
std::uint64_t signature(const StepResult& result);

// Ranks outside the largest group of equal signatures; empty if all agree. Without a majority
// nobody can be told right from wrong: all ranks are named.
std::vector<int> dissenters(std::span<const std::uint64_t> signatures);

// "rank 3", "ranks 0, 1".
std::string name_ranks(std::span<const int> ranks);

}  // namespace copse
