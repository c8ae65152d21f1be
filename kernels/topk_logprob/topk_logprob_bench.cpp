// The draft's rows: 15 positions of the embedded vocabulary, its shard at tp 8, and Kimi's shard.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/random.h"
#include "kernels/topk_logprob/topk_logprob.h"

namespace copse::kernels {
namespace {

void topk_rows(benchmark::State& state) {
  const auto local = static_cast<int>(state.range(0));
  const auto k = static_cast<int>(state.range(1));
  SeededRandom random(1);
  std::vector<float> logits(static_cast<std::size_t>(15 * local));
  for (float& value : logits) value = static_cast<float>(random.below(1 << 20)) / 65536.0f;
  const TopkShape shape{15, k, local, 1, 0, local, local};
  std::vector<TopkWord> part(shape.part_words());
  ThreadPool threads(1);
  for (auto _ : state) {
    topk_logprob_local(shape, logits, part, threads);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 15 * local * 4);
}
BENCHMARK(topk_rows)->Args({512, 32})->Args({4096, 1})->Args({4096, 32})->Args({20480, 64});

}  // namespace
}  // namespace copse::kernels
