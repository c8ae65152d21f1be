// What one step costs the coordinator in CPU time: eight ranks' results decoded, compared and
// committed, the next step planned, encoded for eight ranks, tokens handed to the gateways. Target:
// 60 us.
#include <benchmark/benchmark.h>

#include <ctime>

#include "base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/fake_world_for_test.h"
#include "scheduler/testing/oracle_device.h"

namespace copse {
namespace {

const PeerId kGateway{Role::gateway, 0, 77};
constexpr int kRanks = 8;

// Of this thread: the wall clock would count the neighbours' work as well.
double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

PeerId worker(int rank) {
  return {Role::worker, static_cast<std::uint16_t>(rank), 5};
}

CoordinatorOptions options_of() {
  CoordinatorOptions options;
  options.world_size = kRanks;
  options.build = "bench";
  return options;
}

void submit(Coordinator& coordinator, RequestId id) {
  Submit request;
  request.request = id;
  for (TokenId token = 1; token <= 20; ++token) request.prompt.push_back(token);
  request.max_tokens = 400;
  request.ignore_end = true;
  coordinator.on(kGateway, request);
}

void step(benchmark::State& state) {
  spdlog::set_level(spdlog::level::off);
  const auto sequences = static_cast<RequestId>(state.range(0));
  OracleModel model;
  model.pages = 1024;
  model.slots = limits::batch_sequences;
  FakeLink link;
  FakeSpawner spawner(kRanks);
  ManualClock clock;
  Coordinator coordinator(options_of(), link, spawner, clock);
  coordinator.start();
  coordinator.on(kGateway, RegisterGateway{"bench"});
  for (int rank = 0; rank < kRanks; ++rank) {
    coordinator.on(worker(rank), RegisterWorker{1, static_cast<std::uint16_t>(rank), kRanks,
                                                spawner.pid(rank), "bench"});
    coordinator.on(worker(rank), model.ready(1));
  }
  OracleDevice device(model);
  std::deque<StepPlan> plans;
  RequestId next = 1;
  for (auto _ : state) {
    while (coordinator.open_requests() < sequences) submit(coordinator, next++);
    for (StepPlan& plan : link.take<StepPlan>(worker(0))) plans.push_back(std::move(plan));
    link.sent.clear();
    const StepPlan plan = std::move(plans.front());
    plans.pop_front();
    std::vector<std::vector<std::byte>> frames;
    StepResult result = device.run(plan).value();
    for (int rank = 0; rank < kRanks; ++rank) {
      frames.push_back(encode(result));
      for (SlotResult& slot : result.slots) slot.tokens.clear();
    }
    const double start = cpu_s();
    for (int rank = 0; rank < kRanks; ++rank) {
      const Status handled = dispatch(coordinator, worker(rank), Kind::step_result,
                                      frames[static_cast<std::size_t>(rank)]);
      CHECK(handled.ok());
    }
    state.SetIterationTime(cpu_s() - start);
  }
}
BENCHMARK(step)->Arg(1)->Arg(8)->Arg(32)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace copse

BENCHMARK_MAIN();
