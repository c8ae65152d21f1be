// round_bench [tp] [rounds] [temperature]: where the time of a decode step of one sequence goes,
// against the draft nodes, with the embedded pair. Ranks are processes over shared memory, as in
// service, without coordinator and sockets. Medians, microseconds, of rank 0; the last column is
// the CPU time that all ranks spent computing.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "transport/collective/local.h"
#include "transport/collective/shm.h"
#include "worker/engine.h"

namespace copse {
namespace {

constexpr int kNodeCounts[] = {0, 4, 8, 16, 32, 64};
constexpr TokenId kPrompt[] = {0, 659, 1003, 206, 659, 3376, 339, 834, 356, 1932, 598, 864};

StepPlan opening(float temperature) {
  StepPlan plan;
  SlotOpen open;
  open.generation = 1;
  open.remaining_tokens = 1 << 20;
  open.ignore_end = true;
  open.sampling.temperature = temperature;
  plan.opened.push_back(open);
  PrefillChunk chunk;
  chunk.generation = 1;
  chunk.last = true;
  for (const TokenId token : kPrompt) chunk.tokens.push_back(token);
  for (PageId page = 0; page < limits::plan_entry_pages; ++page) chunk.new_pages.push_back(page);
  plan.prefill.push_back(chunk);
  return plan;
}

StepPlan decoding(int nodes) {
  StepPlan plan;
  DecodeEntry entry;
  entry.generation = 1;
  entry.mode = nodes == 0 ? DraftMode::none : DraftMode::tree;
  entry.node_budget = static_cast<std::uint16_t>(nodes);
  plan.decode.push_back(entry);
  return plan;
}

std::uint32_t median(std::vector<std::uint32_t>& values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Columns {
  std::vector<std::uint32_t> draft, build, verify, accept, collective, total, cpu;

  void add(const StepTiming& timing, std::uint64_t cpu_of_all) {
    draft.push_back(timing.draft_us);
    build.push_back(timing.build_us);
    verify.push_back(timing.verify_us);
    accept.push_back(timing.accept_us);
    collective.push_back(timing.collective_us);
    total.push_back(timing.total_us);
    cpu.push_back(static_cast<std::uint32_t>(cpu_of_all));
  }
};

Status measure(Engine& engine, Collective& group, int rounds, float temperature) {
  const bool speaks = group.rank() == 0;
  if (speaks)
    std::printf("nodes  draft  build verify accept  total  (coll.)    cpu  tokens/step\n");
  for (const int nodes : kNodeCounts) {
    COPSE_RETURN_IF_ERROR(engine.run(opening(temperature)));
    Columns columns;
    double tokens = 0;
    for (int i = 0; i < rounds; ++i) {
      COPSE_RETURN_IF_ERROR(engine.run(decoding(nodes)));
      const StepResult result = engine.result();
      std::uint64_t cpu = result.timing.compute_cpu_us;
      COPSE_RETURN_IF_ERROR(group.all_reduce_sum(std::span(&cpu, 1)));
      columns.add(result.timing, cpu);
      tokens += result.slots[0].walk_length;
    }
    StepPlan release;
    release.released.push_back({0, 1});
    COPSE_RETURN_IF_ERROR(engine.run(release));
    if (!speaks) continue;
    std::printf("%5d %6u %6u %6u %6u %6u  %7u %6u  %.2f\n", nodes, median(columns.draft),
                median(columns.build), median(columns.verify), median(columns.accept),
                median(columns.total), median(columns.collective), median(columns.cpu),
                tokens / rounds);
  }
  return {};
}

int run_rank(Collective& group, int rounds, float temperature) {
  EngineOptions options;
  options.model = "models/sapling";
  options.drafter = "models/sapling-dflash";
  options.slots = 1;
  options.pages = limits::plan_entry_pages;
  const SteadyClock clock;
  auto engine = Engine::load(options, group, clock, {});
  const Status status =
      engine.ok() ? measure(**engine, group, rounds, temperature) : Status(engine.error());
  if (!status.ok()) std::fprintf(stderr, "%s\n", describe(status.error()).c_str());
  return status.ok() ? 0 : 1;
}

int run_group(int world_size, int rounds, float temperature) {
  if (world_size == 1) return run_rank(*make_local_collective(), rounds, temperature);
  ShmOptions options;
  options.world_size = world_size;
  const int fd = create_shm_region(options).value();
  for (int rank = 0; rank < world_size; ++rank) {
    if (fork() != 0) continue;
    ShmJoin join;
    join.pin = true;
    auto group = join_shm(fd, rank, world_size, join);
    const int code = group.ok() ? run_rank(**group, rounds, temperature) : 1;
    std::fflush(stdout);
    _exit(code);
  }
  int failures = 0;
  for (int status = 0; wait(&status) > 0;) failures += status != 0 ? 1 : 0;
  return failures;
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  const int world_size = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 60;
  const float temperature = argc > 3 ? static_cast<float>(std::atof(argv[3])) : 0;
  return copse::run_group(world_size, rounds, temperature);
}
