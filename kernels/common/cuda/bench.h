#pragma once
// Timing of device work: a graph of many launches, replayed, so that the gaps of single launches
// are not counted. Ceilings are those of one H200 (docs: kernels/README.md).
#include <cstddef>
#include <functional>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda::bench {

inline constexpr double read_bytes_per_s = 4615e9;
inline constexpr double bf16_flops_per_s = 785e12;

// Captures `launch` called for i = 0 .. calls - 1 into one graph, replays it `warm_up` and then
// `replays` times, and returns the median of a replay's time divided by `calls`, in µs. For cold
// caches let call i use the i-th of many copies of its data, more than the L2 in all.
Result<double> graph_time_us(int calls, int warm_up, int replays,
                             const std::function<Status(int, Stream)>& launch);

}  // namespace copse::kernels::cuda::bench
