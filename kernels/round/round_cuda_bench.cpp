// round_cuda_bench [OPERATION]: µs a call of what a round adds to a forward pass. A graph of many
// calls is replayed; the median of its replays is divided by the calls. Trees and walks find their
// inputs in the L2, as in a round, where the launch before has just written them; logits and cache
// rows are cold: each call has copies of its own, more than the L2 in all.
// The floor is bytes / 4615 GB/s, launches excluded. JSON, one object a line, to out/round.json.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/limits.h"
#include "base/random.h"
#include "kernels/common/cuda/bench.h"
#include "kernels/common/cuda/device.h"
#include "kernels/common/cuda/device_memory.h"
#include "kernels/kv_commit/kv_commit_cuda.h"
#include "kernels/sample/sample_cuda.h"
#include "kernels/topk_logprob/topk_logprob_cuda.h"
#include "kernels/tree_accept/tree_accept_cuda.h"
#include "kernels/tree_build/tree_build.h"
#include "kernels/tree_build/tree_build_cuda.h"

namespace copse::kernels::cuda {
namespace {

constexpr int positions = 15;
constexpr std::size_t cold_bytes = 200'000'000;

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", describe(result.error()).c_str());
  std::exit(1);
}
template <class T>
DeviceBuffer<T> device(const std::vector<T>& values) {
  return must(DeviceBuffer<T>::from(std::span<const T>(values)));
}
template <class T>
DeviceBuffer<T> room(std::size_t count) {
  return must(DeviceBuffer<T>::allocate(count));
}

std::FILE* json = nullptr;

void report(const std::string& name, double us, double bytes, double cpu_us = 0) {
  const double floor = bytes / bench::read_bytes_per_s * 1e6;
  std::printf("%-44s %8.2f us %10.0f kB  floor %6.2f us %5.1f %%", name.c_str(), us, bytes / 1e3,
              floor, 100 * floor / us);
  if (cpu_us > 0) std::printf("  CPU %7.1f us", cpu_us);
  std::printf("\n");
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"operation\": \"%s\", \"us\": %.3f, \"bytes\": %.0f, \"floor_us\": %.3f, "
               "\"cpu_us\": %.2f}\n",
               name.c_str(), us, bytes, floor, cpu_us);
}

double time_us(int calls, const std::function<Status(int, Stream)>& launch) {
  return must(bench::graph_time_us(calls, 3, 21, launch));
}

float uniform(SeededRandom& random) {
  return static_cast<float>(random.below(1 << 20) + 1) / 1048577.0f;
}

// Candidates of one sequence: each position falls off in its own way.
std::vector<float> draft(float fall, SeededRandom& random) {
  std::vector<float> values;
  for (int p = 0; p < positions; ++p) {
    const float best = -0.05f - 0.7f * uniform(random) - 0.05f * static_cast<float>(p);
    const float slope = fall * (0.7f + 0.6f * uniform(random));
    float value = best;
    for (int i = 0; i < limits::tree_top_k; ++i) {
      values.push_back(value);
      value -= slope * (0.5f + uniform(random)) / static_cast<float>(1 + i);
    }
  }
  return values;
}

double cpu_tree_us(const std::vector<float>& log_probs, const std::vector<TokenId>& token_ids,
                   int budget) {
  const auto rows = static_cast<std::size_t>(1 + budget);
  std::vector<TokenId> tokens(rows);
  std::vector<std::int32_t> parents(rows);
  std::vector<std::int32_t> depths(rows);
  std::vector<std::uint64_t> masks(rows * static_cast<std::size_t>(tree_mask_words(budget)));
  TreeBuildTask task = {
      log_probs, token_ids, positions, limits::tree_top_k, budget, false, 1, 10, tokens, parents,
      depths,    masks,     0};
  TreeBuildWorkspace workspace(budget, positions);
  constexpr int runs = 50;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) kernels::tree_build(std::span(&task, 1), workspace);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count() / runs;
}

void bench_tree_build(const char* kind, float fall, int budget, int sequences) {
  SeededRandom random(1);
  std::vector<float> log_probs;
  std::vector<TokenId> token_ids;
  for (int s = 0; s < sequences; ++s) {
    const std::vector<float> own = draft(fall, random);
    log_probs.insert(log_probs.end(), own.begin(), own.end());
  }
  for (std::size_t i = 0; i < log_probs.size(); ++i) token_ids.push_back(static_cast<TokenId>(i));
  const auto count = static_cast<std::size_t>(sequences);
  const std::size_t rows = count * static_cast<std::size_t>(1 + budget);
  TreeBuildCall call;
  call.sequences = sequences;
  call.positions = call.candidate_rows = positions;
  call.k = limits::tree_top_k;
  call.rows_per_sequence = 1 + budget;
  const auto words = static_cast<std::size_t>(call.mask_words());
  const auto device_log_probs = device(log_probs);
  const auto device_token_ids = device(token_ids);
  const auto budgets = device(std::vector<std::int32_t>(count, budget));
  const auto chain = device(std::vector<std::int32_t>(count, 0));
  const auto root = device(std::vector<std::int32_t>(count, 10));
  const auto row_arrays = room<std::int32_t>(3 * rows);
  const auto ancestors = room<std::uint64_t>(rows * words);
  const auto built = room<std::int32_t>(count);
  call.log_probs = device_log_probs.data();
  call.token_ids = device_token_ids.data();
  call.budget = budgets.data();
  call.chain = chain.data();
  call.root_token = call.root_position = root.data();
  call.row_tokens = row_arrays.data();
  call.row_parents = row_arrays.data() + rows;
  call.row_positions = row_arrays.data() + 2 * rows;
  call.ancestors = ancestors.data();
  call.rows = built.data();
  const double us = time_us(40, [&](int, Stream stream) { return tree_build(call, stream); });
  const double bytes =
      static_cast<double>(log_probs.size()) * 8 + static_cast<double>(rows * (12 + 8 * words));
  const std::size_t one = static_cast<std::size_t>(positions * limits::tree_top_k);
  const double cpu =
      cpu_tree_us({log_probs.begin(), log_probs.begin() + static_cast<int>(one)},
                  {token_ids.begin(), token_ids.begin() + static_cast<int>(one)}, budget);
  report(std::string("tree_build ") + kind + " budget " + std::to_string(budget) + " batch " +
             std::to_string(sequences),
         us, bytes, cpu * sequences);
}

void bench_tree_accept(int nodes, int sequences) {
  const auto n = static_cast<std::size_t>(1 + nodes);
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<std::int32_t> targets;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i <= nodes; ++i) {
      tokens.push_back(i);
      parents.push_back(i <= positions ? i - 1 : i % positions);
      targets.push_back(i < positions ? i + 1 : -7);
    }
  }
  const auto count = static_cast<std::size_t>(sequences);
  DeviceSlot slot{};
  slot.remaining = 1000;
  slot.end_token_count = 2;
  const auto device_tokens = device(tokens);
  const auto device_parents = device(parents);
  const auto device_targets = device(targets);
  const auto rows = device(std::vector<std::int32_t>(count, 1 + nodes));
  const auto slots = device(std::vector<DeviceSlot>(count, slot));
  std::vector<std::int32_t> entries;
  for (int s = 0; s < sequences; ++s) entries.push_back(s);
  const auto entry_slot = device(entries);
  const auto accepted = room<std::int32_t>(count * (limits::draft_block + 1));
  const auto results = room<std::int32_t>(3 * count);
  const TreeAcceptCall call = {sequences,
                               1 + nodes,
                               device_tokens.data(),
                               device_parents.data(),
                               rows.data(),
                               device_targets.data(),
                               slots.data(),
                               entry_slot.data(),
                               accepted.data(),
                               results.data(),
                               results.data() + count,
                               results.data() + 2 * count};
  const double us = time_us(40, [&](int, Stream stream) { return tree_accept(call, stream); });
  report("tree_accept nodes " + std::to_string(nodes) + " batch " + std::to_string(sequences), us,
         static_cast<double>(count * n * 12));
}

DeviceBuffer<float> cold_logits(std::size_t values, int copies) {
  SeededRandom random(4);
  std::vector<float> logits(values);
  for (float& value : logits) value = -3.0f * std::log(uniform(random)) - 4.0f;
  auto buffer = room<float>(values * static_cast<std::size_t>(copies));
  for (int i = 0; i < copies; ++i) {
    const auto status = copy_to_device(buffer.data() + static_cast<std::size_t>(i) * values,
                                       logits.data(), values * sizeof(float));
    if (!status.ok()) std::exit(1);
  }
  return buffer;
}

int copies_for(std::size_t bytes) {
  return static_cast<int>(std::max<std::size_t>(8, cold_bytes / bytes + 1));
}

// All of the vocabulary on this rank, or the eighth that one of eight has.
void bench_topk(int rows, int k, int world) {
  constexpr int vocabulary = 163840;
  TopkShape shape{rows, k, vocabulary, world, 0, vocabulary / world, vocabulary / world};
  const auto values = static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape.stride);
  const int copies = copies_for(values * sizeof(float));
  const auto logits = cold_logits(values, copies);
  const auto parts = room<TopkWord>(topk_part_words(shape) * static_cast<std::size_t>(world));
  const auto log_probs = room<float>(static_cast<std::size_t>(rows * k));
  const auto token_ids = room<TokenId>(static_cast<std::size_t>(rows * k));
  const auto local = [&](int i, Stream stream) {
    return topk_logprob_local(shape, logits.data() + static_cast<std::size_t>(i) * values,
                              parts.data(), stream);
  };
  const auto merge = [&](int, Stream stream) {
    return topk_logprob_merge(shape, parts.data(), log_probs.data(), token_ids.data(), stream);
  };
  const std::string name =
      " rows " + std::to_string(rows) + " k " + std::to_string(k) + " of " + std::to_string(world);
  const auto bytes = static_cast<double>(values * sizeof(float));
  report("topk local" + name, time_us(copies, local), bytes);
  report("topk merge" + name, time_us(copies, merge),
         static_cast<double>(topk_part_words(shape) * 8) * world);
  report("topk both" + name,
         time_us(copies,
                 [&](int i, Stream stream) {
                   const Status status = local(i, stream);
                   return status.ok() ? merge(i, stream) : status;
                 }),
         bytes);
}

void bench_sample(const char* kind, float temperature, float top_p, int rows, int world) {
  constexpr int vocabulary = 163840;
  const int local = vocabulary / world;
  const auto values = static_cast<std::size_t>(rows) * static_cast<std::size_t>(local);
  const int copies = copies_for(values * sizeof(float));
  const auto logits = cold_logits(values, copies);
  DeviceSlot slot{};
  slot.temperature = temperature;
  slot.top_p = top_p;
  slot.seed = 7;
  const auto slots = device(std::vector<DeviceSlot>{slot});
  const auto entry_slot = device(std::vector<std::int32_t>{0});
  std::vector<std::int32_t> at;
  for (int r = 0; r < rows; ++r) at.push_back(r);
  const auto row_positions = device(at);
  SampleCall call;
  call.rows = call.rows_per_sequence = rows;
  call.stride = call.vocabulary_rows = local;
  call.vocabulary = vocabulary;
  call.world_size = world;
  call.row_positions = row_positions.data();
  call.slots = slots.data();
  call.entry_slot = entry_slot.data();
  const auto count = static_cast<std::size_t>(rows);
  const auto lists = static_cast<std::size_t>(sample_slices(call) * world);
  const auto choices = room<SampleChoice>(count * lists);
  const auto tokens = room<TokenId>(count);
  const auto maxima = room<float>(count * lists);
  const auto states = room<FilterRow>(2 * count);
  const auto bins = room<std::uint64_t>(3 * count * sample_bins);
  const auto thresholds = room<SampleThreshold>(count);
  const bool filter = top_p < 1;
  const SampleFilterUse use = {false, true};
  const SampleFilterArrays arrays = {states.data(), bins.data()};
  const auto launch = [&](int i, Stream stream) -> Status {
    SampleCall mine = call;
    mine.logits = logits.data() + static_cast<std::size_t>(i) * values;
    if (filter) {
      COPSE_RETURN_IF_ERROR(sample_filter_maxima(mine, arrays, maxima.data(), stream));
      for (int step = 0; step < sample_filter_steps(mine, use); ++step) {
        COPSE_RETURN_IF_ERROR(sample_filter_step(mine, use, step, maxima.data(), arrays, stream));
      }
      COPSE_RETURN_IF_ERROR(
          sample_filter_finish(mine, use, maxima.data(), arrays, thresholds.data(), stream));
    }
    COPSE_RETURN_IF_ERROR(
        sample_local(mine, filter ? thresholds.data() : nullptr, choices.data(), stream));
    return sample_merge(mine, choices.data(), tokens.data(), stream);
  };
  report(std::string("sample ") + kind + " rows " + std::to_string(rows) + " of " +
             std::to_string(world),
         time_us(copies, launch), static_cast<double>(values * sizeof(float)));
}

void bench_kv_commit(int kept, int sequences) {
  constexpr int layers = 61;
  constexpr int width = 576;
  constexpr int scratch_rows = 65;
  constexpr int pages_each = 4;
  const auto count = static_cast<std::size_t>(sequences);
  const std::size_t scratch_values = count * layers * scratch_rows * width;
  const std::size_t page_values = count * layers * pages_each * limits::page_tokens * width;
  const std::size_t moved = count * layers * static_cast<std::size_t>(kept) * width * 2;
  const int copies = std::min(40, copies_for(moved));
  const auto scratch = room<Bf16>(scratch_values * static_cast<std::size_t>(copies));
  const auto pages = room<Bf16>(page_values);
  std::vector<std::int32_t> accepted;
  std::vector<PageId> tables;
  std::vector<std::int32_t> entries;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i <= limits::draft_block; ++i) accepted.push_back(2 * i % scratch_rows);
    for (int p = 0; p < pages_each; ++p) tables.push_back(s * pages_each + p);
    entries.push_back(s);
  }
  const auto device_accepted = device(accepted);
  const auto counts = device(std::vector<std::int32_t>(count, kept));
  const auto entry_slot = device(entries);
  const auto first_position = device(std::vector<std::int32_t>(count, 60));
  const auto page_tables = device(tables);
  KvCommitCall<Bf16> call;
  call.layers = layers;
  call.slots = sequences;
  call.scratch_rows = scratch_rows;
  call.pages_count = sequences * pages_each;
  call.width = width;
  call.pages = pages.data();
  call.sequences = sequences;
  call.rows_max = call.accepted_stride = limits::draft_block + 1;
  call.table_pages = pages_each;
  call.accepted = device_accepted.data();
  call.counts = counts.data();
  call.entry_slot = entry_slot.data();
  call.first_position = first_position.data();
  call.page_tables = page_tables.data();
  const double us = time_us(copies, [&](int i, Stream stream) {
    KvCommitCall<Bf16> mine = call;
    mine.scratch = scratch.data() + static_cast<std::size_t>(i) * scratch_values;
    return kv_commit(mine, stream);
  });
  report("kv_commit kept " + std::to_string(kept) + " batch " + std::to_string(sequences), us,
         static_cast<double>(moved) * sizeof(Bf16));
}

void bench_all(const std::string& only) {
  const auto wanted = [&](const char* operation) { return only.empty() || only == operation; };
  if (wanted("tree_build")) {
    for (const int budget : {8, 16, 32, 64, 128, 512}) {
      for (const int batch : {1, 8, 32}) bench_tree_build("usual", 1.6f, budget, batch);
    }
    for (const int budget : {16, 64, 512}) {
      bench_tree_build("flat", 0.3f, budget, 8);
      bench_tree_build("sure", 6.0f, budget, 8);
    }
  }
  if (wanted("tree_accept")) {
    for (const int nodes : {16, 64, 512}) {
      for (const int batch : {1, 32}) bench_tree_accept(nodes, batch);
    }
  }
  if (wanted("topk")) {
    for (const int k : {64, 16}) {
      for (const int rows : {1, 16, 64}) bench_topk(rows, k, 1);
    }
    bench_topk(16, 64, 8);
    bench_topk(64, 64, 8);
  }
  if (wanted("sample")) {
    for (const int world : {1, 8}) {
      for (const int rows : {1, 17, 65}) {
        bench_sample("greedy", 0, 1, rows, world);
        bench_sample("temperature", 0.8f, 1, rows, world);
      }
      bench_sample("top-p", 0.8f, 0.95f, 17, world);
    }
  }
  if (wanted("kv_commit")) {
    for (const int kept : {1, 5, 16}) {
      for (const int batch : {1, 8}) bench_kv_commit(kept, batch);
    }
  }
}

}  // namespace
}  // namespace copse::kernels::cuda

int main(int argc, char** argv) {
  using namespace copse::kernels::cuda;
  if (!must(open_device(0)).hopper())
    std::printf("not a Hopper GPU: the ceilings are not its own\n");
  json = std::fopen("out/round.json", "w");
  bench_all(argc > 1 ? argv[1] : "");
  if (json != nullptr) std::fclose(json);
  return 0;
}
