// 33 rows (a tree of 32 nodes) of the embedded vocabulary, and of its shard at tp 8: greedy, plain
// noise, and with the nucleus filter's local work.
#include <benchmark/benchmark.h>

#include "kernels/sample/sample_testing.h"

namespace copse::kernels {
namespace {

void sample_rows(benchmark::State& state, float temperature) {
  const auto vocabulary = static_cast<int>(state.range(0));
  const std::vector<float> logits = testing::model_logits(33, vocabulary, 4);
  std::vector<SampleRow> rows(33);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].temperature = temperature;
    rows[i].seed = 7;
    rows[i].position = i;
  }
  std::vector<SampleChoice> choices(33);
  ThreadPool threads(1);
  const SampleLogits view = {logits, 33, vocabulary, 0, vocabulary};
  for (auto _ : state) {
    sample_local(view, rows, {}, choices, threads);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 33 * vocabulary * 4);
}
BENCHMARK_CAPTURE(sample_rows, greedy, 0.0f)->Arg(512)->Arg(4096);
BENCHMARK_CAPTURE(sample_rows, temperature, 0.8f)->Arg(512)->Arg(4096);

void sample_nucleus(benchmark::State& state) {
  const auto vocabulary = static_cast<int>(state.range(0));
  const std::vector<float> logits = testing::model_logits(33, vocabulary, 4);
  std::vector<SampleRow> rows(33);
  for (SampleRow& row : rows) row.temperature = 0.8f, row.top_p = 0.95f, row.seed = 7;
  std::vector<SampleChoice> choices(33);
  ThreadPool threads(1);
  const SampleLogits view = {logits, 33, vocabulary, 0, vocabulary};
  SampleFilter filter(33, vocabulary, vocabulary);
  for (auto _ : state) {
    filter.begin(view, rows, filter.local_maxima(view, rows), threads);
    for (int pass = 0; filter.pending(FilterStage::top_p); ++pass) {
      filter.histogram(FilterStage::top_p, pass, threads);
      filter.narrow(FilterStage::top_p, pass);
    }
    sample_local(view, rows, filter.thresholds(), choices, threads);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 33 * vocabulary * 4);
}
BENCHMARK(sample_nucleus)->Arg(512)->Arg(4096);

}  // namespace
}  // namespace copse::kernels
