// linear_bench: rows x outputs x inputs of the embedded target's products, bf16 weights. Several
// copies of the weight take turns, so that they come from the last-level cache as in a forward
// pass.
#include "kernels/linear/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/common/bench.h"

namespace copse::kernels {
namespace {

void run(benchmark::State& state, int threads, int leaves) {
  const auto rows = static_cast<int>(state.range(0));
  const auto outputs = static_cast<int>(state.range(1));
  const auto inputs = static_cast<int>(state.range(2));
  const std::vector<Bf16> source(static_cast<std::size_t>(outputs * inputs), to_bf16(0.01f));
  const std::size_t copies =
      std::max<std::size_t>(1, (std::size_t{8} << 20) / (source.size() * sizeof(Bf16)));
  std::vector<PackedWeight> weights;
  for (std::size_t i = 0; i < copies; ++i) {
    weights.push_back(pack_weight(source.data(), outputs, inputs, inputs));
  }
  std::vector<float> x(static_cast<std::size_t>(rows * inputs), 0.5f);
  std::vector<float> y(static_cast<std::size_t>(rows * outputs));
  ThreadPool pool(threads);
  std::size_t turn = 0;
  for (auto _ : state) {
    linear(matrix(x.data(), rows, inputs), weights[turn], matrix(y.data(), rows, outputs), pool,
           leaves);
    turn = turn + 1 == copies ? 0 : turn + 1;
    benchmark::ClobberMemory();
  }
  bench::report(state, linear_bytes_moved(rows, weights[0]),
                2ull * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(outputs) *
                    static_cast<std::uint64_t>(inputs),
                threads);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"});
  for (const int rows : {1, 8, 17, 33, 64}) {
    bench->Args({rows, 192, 256})->Args({rows, 1024, 192})->Args({rows, 256, 768});
    bench->Args({rows, 4096, 256});
  }
}

BENCHMARK_CAPTURE(run, one_thread, 1, 1)->Apply(shapes);
BENCHMARK_CAPTURE(run, two_threads, 2, 1)->Apply(shapes)->UseRealTime();
BENCHMARK_CAPTURE(run, one_thread_8_leaves, 1, 8)->Apply(shapes);

}  // namespace
}  // namespace copse::kernels
