// moe_experts_bench: a layer of the embedded target (16 experts of 128, top 4, one shared, hidden
// 256, bf16), and the same at a world size of 8. Four layers take turns.
#include "kernels/moe_experts/moe_experts.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "kernels/common/bench.h"

namespace copse::kernels {
namespace {

constexpr int experts = 16;
constexpr int per_token = 4;
constexpr int hidden = 256;
constexpr std::size_t layers = 4;

ExpertWeights make_expert(int inner) {
  const std::vector<Bf16> source(static_cast<std::size_t>(inner * hidden), to_bf16(0.01f));
  return {pack_weight(source.data(), inner, hidden, hidden),
          pack_weight(source.data(), inner, hidden, hidden),
          pack_weight(source.data(), hidden, inner, inner)};
}

void run(benchmark::State& state, int threads, int leaves) {
  const auto rows = static_cast<int>(state.range(0));
  const int inner = 128 * leaves / 8;
  std::vector<std::vector<ExpertWeights>> weights(layers);
  std::vector<MoeLayer> all(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    for (int e = 0; e <= experts; ++e) weights[i].push_back(make_expert(inner));
    all[i].experts = std::span<const ExpertWeights>(weights[i]).first(experts);
    all[i].shared = &weights[i].back();
    all[i].leaves = leaves;
  }
  SeededRandom random(1);
  std::vector<std::int32_t> ids;
  for (int r = 0; r < rows; ++r) {
    const auto first = static_cast<std::int32_t>(random.below(experts));
    std::int32_t row[per_token];
    for (int i = 0; i < per_token; ++i) row[i] = (first + 3 * i) % experts;
    std::sort(row, row + per_token);
    ids.insert(ids.end(), row, row + per_token);
  }
  const std::vector<float> shares(ids.size(), 0.25f);
  const std::vector<float> x(static_cast<std::size_t>(rows * hidden), 0.5f);
  std::vector<float> y(x.size());
  MoeWorkspace workspace(rows, per_token, experts, inner, inner, hidden);
  ThreadPool pool(threads);
  std::size_t turn = 0;
  for (auto _ : state) {
    moe_experts(matrix(x.data(), rows, hidden), ids, shares, per_token, all[turn],
                matrix(y.data(), rows, hidden), workspace, pool);
    turn = (turn + 1) % layers;
    benchmark::ClobberMemory();
  }
  const auto products = static_cast<std::uint64_t>(rows) * (per_token + 1) * 3 * hidden *
                        static_cast<std::uint64_t>(inner);
  bench::report(state, moe_experts_bytes_moved(matrix(x.data(), rows, hidden), ids, all[0]),
                2 * products, threads);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("rows");
  for (const int rows : {1, 9, 17, 33, 65, 256}) bench->Arg(rows);
}

BENCHMARK_CAPTURE(run, one_thread, 1, 8)->Apply(shapes);
BENCHMARK_CAPTURE(run, two_threads, 2, 8)->Apply(shapes)->UseRealTime();
BENCHMARK_CAPTURE(run, one_of_8_ranks, 1, 1)->Apply(shapes);

}  // namespace
}  // namespace copse::kernels
