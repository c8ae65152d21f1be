#pragma once
// What kernel benchmarks share: this machine's measured ceilings, and counters that say time,
// bytes, GB/s, GFLOP/s and the share of the ceiling.
#include <benchmark/benchmark.h>

#include <cstdint>

namespace copse::kernels::bench {

// Float32 multiply-adds of one thread with all operands in registers, FLOP/s. Measured once.
double peak_flops();
// Reading 8 MiB that stay in the last-level cache, and 256 MiB that do not; one thread, bytes/s.
double cache_bandwidth();
double memory_bandwidth();

// The rates use the benchmark's clock: thread CPU time, or real time where it says UseRealTime
// (with several threads). threads: how many the ceilings are multiplied by.
void report(benchmark::State& state, std::uint64_t bytes, std::uint64_t flops, int threads);

}  // namespace copse::kernels::bench
