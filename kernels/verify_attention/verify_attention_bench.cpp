// verify_attention_bench: one layer of the embedded target (8 heads, latent 512 + 64) for one
// sequence. Four caches take turns, as the layers of a step do.
#include "kernels/verify_attention/verify_attention.h"

#include <vector>

#include "kernels/common/aligned.h"
#include "kernels/common/bench.h"

namespace copse::kernels {
namespace {

constexpr int latent = 512;
constexpr int rope = 64;
constexpr int width = latent + rope;
constexpr int layers = 4;

void run(benchmark::State& state, int threads, int heads, bool tree) {
  const auto rows = static_cast<int>(state.range(0));
  const auto prefix = static_cast<int>(state.range(1));
  const int pages = (prefix + 63) / 64;
  const auto floats = [](int a, int b) {
    return AlignedFloats(static_cast<std::size_t>(a) * static_cast<std::size_t>(b), 0.01f);
  };
  std::vector<AlignedFloats> caches;
  for (int i = 0; i < layers; ++i) caches.push_back(floats(pages * 64, width));
  const AlignedFloats scratch = floats(rows, width);
  const AlignedFloats q = floats(rows * heads, width);
  AlignedFloats out = floats(rows * heads, latent);
  std::vector<PageId> table;
  for (int i = 0; i < pages; ++i) table.push_back(i);
  // A binary tree: row i's parent is (i - 1) / 2.
  const int words = (rows + 63) / 64;
  std::vector<std::uint64_t> masks(static_cast<std::size_t>(rows * words));
  for (int i = 0; i < rows; ++i) {
    for (int node = i; node >= 0; node = node == 0 ? -1 : (node - 1) / 2) {
      masks[static_cast<std::size_t>(i * words + node / 64)] |= 1ull << (node % 64);
    }
  }
  const VerifySequence sequence = {
      0, rows, prefix, 0, table.data(), tree ? masks.data() : nullptr, words};
  VerifyAttention call;
  call.heads = heads;
  call.latent = latent;
  call.rope = rope;
  call.scale = 0.1f;
  call.scratch_rows = rows;
  call.q = q.data();
  call.scratch = scratch.data();
  call.out = out.data();
  call.sequences = {&sequence, 1};
  ThreadPool pool(threads);
  std::size_t turn = 0;
  for (auto _ : state) {
    call.pages = caches[turn].data();
    verify_attention(call, pool);
    turn = (turn + 1) % layers;
    benchmark::ClobberMemory();
  }
  bench::report(state, verify_attention_bytes_moved(call), verify_attention_flops(call), threads);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "prefix"});
  for (const int rows : {1, 9, 33, 65}) {
    for (const int prefix : {128, 1000, 4000}) bench->Args({rows, prefix});
  }
}

BENCHMARK_CAPTURE(run, tree_8_heads_1_thread, 1, 8, true)->Apply(shapes);
BENCHMARK_CAPTURE(run, tree_8_heads_2_threads, 2, 8, true)->Apply(shapes)->UseRealTime();
BENCHMARK_CAPTURE(run, tree_1_head_1_thread, 1, 1, true)->Apply(shapes);
BENCHMARK_CAPTURE(run, chain_8_heads_1_thread, 1, 8, false)->Args({256, 0})->Args({256, 1024});

}  // namespace
}  // namespace copse::kernels
