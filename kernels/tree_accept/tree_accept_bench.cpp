// A walk down a tree whose every node has one child: the longest there is.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/tree_accept/tree_accept.h"

namespace copse::kernels {
namespace {

void tree_accept_nodes(benchmark::State& state) {
  const auto nodes = static_cast<int>(state.range(0));
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<TokenId> targets;
  for (int i = 0; i <= nodes; ++i) {
    tokens.push_back(i);
    parents.push_back(i <= 15 ? i - 1 : i % 15);
    targets.push_back(i < 15 ? i + 1 : -7);
  }
  std::vector<std::int32_t> accepted(17);
  TreeAcceptTask task = {tokens, parents, targets, {}, 1000, accepted, 0, 0, false};
  for (auto _ : state) {
    tree_accept(std::span(&task, 1));
    benchmark::DoNotOptimize(task.kept);
  }
  state.SetBytesProcessed(state.iterations() * (nodes + 1) * 12);
}
BENCHMARK(tree_accept_nodes)->Arg(16)->Arg(64)->Arg(512);

}  // namespace
}  // namespace copse::kernels
