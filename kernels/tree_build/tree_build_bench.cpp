// Budget nodes of a 15-position draft with 64 candidates each: microseconds a tree.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "kernels/tree_build/tree_build.h"

namespace copse::kernels {
namespace {

void tree_build_budget(benchmark::State& state) {
  const auto budget = static_cast<int>(state.range(0));
  std::vector<float> log_probs;
  std::vector<TokenId> token_ids;
  for (int p = 0; p < 15; ++p) {
    for (int i = 0; i < 64; ++i) {
      log_probs.push_back(-0.3f - 0.1f * static_cast<float>(p) -
                          1.1f * std::log2(1.0f + static_cast<float>(i)));
      token_ids.push_back(i * 15 + p);
    }
  }
  const auto rows = static_cast<std::size_t>(1 + budget);
  std::vector<TokenId> tokens(rows);
  std::vector<std::int32_t> parents(rows);
  std::vector<std::int32_t> positions(rows);
  std::vector<std::uint64_t> masks(rows * static_cast<std::size_t>(tree_mask_words(budget)));
  TreeBuildTask task = {log_probs, token_ids, 15,      64,        budget, false, 1,
                        10,        tokens,    parents, positions, masks,  0};
  TreeBuildWorkspace workspace(budget, 15);
  for (auto _ : state) {
    tree_build(std::span(&task, 1), workspace);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(15 * 64 * 8 + rows * 12 + masks.size() * 8));
}
BENCHMARK(tree_build_budget)->Arg(16)->Arg(32)->Arg(64)->Arg(512);

}  // namespace
}  // namespace copse::kernels
