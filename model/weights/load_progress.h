#pragma once
#include <cstdint>
#include <functional>

namespace copse {

// Called from the loading thread with bytes read so far and in all, of this rank.
using OnWeightsRead = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace copse
