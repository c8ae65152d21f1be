#include "kernels/common/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/bench.cpp"
#include <hwy/foreach_target.h>

#include "kernels/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace copse::kernels {
namespace HWY_NAMESPACE {
namespace {

// Twelve independent chains hide the latency of a multiply-add.
float multiply_add_rounds(int rounds) {
  Lanes sums[12];
  for (Lanes& sum : sums) sum = zero();
  const Lanes a = broadcast(0.5f);
  const Lanes b = broadcast(0.25f);
  for (int i = 0; i < rounds; ++i) {
    _Pragma("GCC unroll 12") for (int j = 0; j < 12; ++j) sums[j] = fma(a, sums[j], b);
  }
  for (int j = 1; j < 12; ++j) sums[0] = add(sums[0], sums[j]);
  return tree_sum(sums[0]);
}

float read_all(const float* data, std::size_t count) {
  Lanes sums[8];
  for (Lanes& sum : sums) sum = zero();
  for (std::size_t i = 0; i + 128 <= count; i += 128) {
    _Pragma("GCC unroll 8") for (std::size_t j = 0; j < 8; ++j) {
      sums[j] = add(sums[j], load(data + i + 16 * j));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = add(sums[0], sums[j]);
  return tree_sum(sums[0]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace copse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <ctime>
#include <vector>

#include "kernels/common/bench.h"

namespace copse::kernels {
namespace {

HWY_EXPORT(multiply_add_rounds);
HWY_EXPORT(read_all);

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The best of many short runs by the thread's own clock: other processes cost it little.
template <class Work>
double best_rate(double amount, const Work& work) {
  double best = 0;
  for (int i = 0; i < 100; ++i) {
    const double start = thread_seconds();
    benchmark::DoNotOptimize(work());
    best = std::max(best, amount / (thread_seconds() - start));
  }
  return best;
}

double read_rate(std::size_t floats, int times) {
  const std::vector<float> data(floats, 1.0f);
  return best_rate(static_cast<double>(floats * sizeof(float)) * times, [&] {
    float sum = 0;
    for (int i = 0; i < times; ++i) sum += HWY_DYNAMIC_DISPATCH(read_all)(data.data(), floats);
    return sum;
  });
}

}  // namespace

namespace bench {

double peak_flops() {
  static const double rate = best_rate(
      2.0 * 16 * 12 * 1e5, [] { return HWY_DYNAMIC_DISPATCH(multiply_add_rounds)(100000); });
  return rate;
}

double cache_bandwidth() {
  static const double rate = read_rate(std::size_t{2} << 20, 1);  // 8 MiB
  return rate;
}

double memory_bandwidth() {
  static const double rate = read_rate(std::size_t{64} << 20, 1);  // 256 MiB
  return rate;
}

void report(benchmark::State& state, std::uint64_t bytes, std::uint64_t flops, int threads) {
  using benchmark::Counter;
  const auto rounds = static_cast<double>(state.iterations());
  const auto rate = [&](double amount) {
    return Counter(amount * rounds, Counter::kIsRate, Counter::kIs1000);
  };
  state.counters["bytes"] = Counter(static_cast<double>(bytes));
  state.counters["B/s"] = rate(static_cast<double>(bytes));
  state.counters["FLOP/s"] = rate(static_cast<double>(flops));
  state.counters["%peak_flops"] = rate(100.0 * static_cast<double>(flops) / peak_flops() / threads);
  state.counters["%cache_read"] =
      rate(100.0 * static_cast<double>(bytes) / cache_bandwidth() / threads);
}

}  // namespace bench
}  // namespace copse::kernels
#endif
