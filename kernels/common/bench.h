#pragma once
// What kernel benchmarks share: this machine's measured ceilings, and counters that say time,
// bytes, GB/s, GFLOP/s and the share of the ceiling.
#include <benchmark/benchmark.h>

#include <cstdint>

namespace copse::kernels::bench {

// Float32 multiply-adds of one thread with all operands in registers, FLOP/s. Measured once.
double peak_flops();
// Reading a buffer that stays in the last-level cache, and one that does not, one thread, bytes/s.
double cache_bandwidth();
double memory_bandwidth();

// threads: how many the ceiling is multiplied by.
void report(benchmark::State& state, std::uint64_t bytes, std::uint64_t flops, int threads);

}  // namespace copse::kernels::bench
