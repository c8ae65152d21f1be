// Accepted rows of one round in the embedded target's cache: 5 layers of 576 values.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/limits.h"
#include "kernels/kv_commit/kv_commit.h"

namespace copse::kernels {
namespace {

void kv_commit_rows(benchmark::State& state) {
  const auto count = static_cast<std::int32_t>(state.range(0));
  std::vector<float> scratch(5 * 65 * 576, 1.0f);
  std::vector<float> pages(5 * 16 * limits::page_tokens * 576);
  std::vector<KvCommitRow> rows;
  for (std::int32_t i = 0; i < count; ++i) rows.push_back({0, 2 * i, 3, i});
  const KvCommitCache cache = {scratch, pages, 5, 1, 65, 16, 576};
  for (auto _ : state) {
    kv_commit(cache, rows);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * 5 * count * 576 * 4);
}
BENCHMARK(kv_commit_rows)->Arg(1)->Arg(4)->Arg(16);

}  // namespace
}  // namespace copse::kernels
