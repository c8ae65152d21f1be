// copse-worker: one rank of the tensor-parallel group. Started by the coordinator, or by srun,
// mpirun or torchrun, whose environment then names the rank.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "model/cuda/verify_kernel.h"
#include "transport/actor/runtime.h"
#include "transport/actor/zmq_links.h"
#include "worker/engine_loader_cpu.h"
#include "worker/engine_loader_cuda.h"
#include "worker/threaded_executor.h"
#include "worker/worker.h"

namespace copse {
namespace {

constexpr int kUsage = 2;
// What was sent last may still be on its way when the actor ends.
constexpr Duration kFarewell = milliseconds(60);

struct Flags {
  CpuExecutorOptions executor;
  std::uint32_t epoch = 1;
  std::string endpoint;
  std::string log_level = "info";
  std::string device = "cpu";
  std::string dtype = "bfloat16";
  std::string load_format = "auto";
  std::string verify_kernel = "fast";
  CudaExecutorOptions cuda;  // what the flags above do not say
};

// -1: none of the launchers set it.
int rank_of_environment() {
  for (const char* name : {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    char* end = nullptr;
    const long rank = std::strtol(value, &end, 10);
    if (*end == '\0' && rank >= 0 && rank < limits::world_size) return static_cast<int>(rank);
  }
  return -1;
}

void declare(CLI::App& app, Flags& flags) {
  EngineOptions& engine = flags.executor.engine;
  app.add_option("--rank", flags.executor.rank, "this rank; else the launcher's environment")
      ->check(CLI::Range(0, limits::world_size - 1));
  app.add_option("--tp", flags.executor.world_size, "ranks of the group")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--epoch", flags.epoch, "of the group");
  app.add_option("--endpoint", flags.endpoint, "of the coordinator")->required();
  app.add_option("--collective-fd", flags.executor.collective_fd, "shared memory of the group");
  app.add_option("--model", engine.model, "checkpoint folder of the target")->required();
  app.add_option("--drafter", engine.drafter, "checkpoint folder of the drafter; empty: none");
  app.add_option("--threads", engine.threads, "compute threads; 0: cores / tp")
      ->check(CLI::Range(0, limits::worker_threads));
  app.add_option("--max-num-seqs", engine.slots, "sequences that decode together")
      ->check(CLI::Range(1, limits::batch_sequences));
  app.add_option("--kv-pages", engine.pages, "pages of 64 tokens; 0: as --kv-memory-mb allows")
      ->check(CLI::Range(0, limits::pages));
  app.add_option("--kv-memory-mb", engine.kv_memory_mb, "memory of the pages; 0: chosen")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--max-model-len", engine.context_tokens, "longest sequence; 0: the model's")
      ->check(CLI::Range(0, limits::sequence_tokens));
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off");
}

void declare_device(CLI::App& app, Flags& flags) {
  app.add_option("--device", flags.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--dtype", flags.dtype, "with cuda: bfloat16 or float32")
      ->check(CLI::IsMember({"bfloat16", "float32"}));
  app.add_option("--load-format", flags.load_format, "with cuda: auto, or dummy: random weights")
      ->check(CLI::IsMember({"auto", "dummy"}));
  app.add_option("--verify-kernel", flags.verify_kernel, "with cuda: fast, portable or naive")
      ->check(CLI::IsMember({"fast", "portable", "naive"}));
  app.add_option("--mem-fraction", flags.cuda.engine.memory_fraction,
                 "with cuda: part of the device's memory that may be used")
      ->check(CLI::Range(0.01, 0.98));
  app.add_flag(
      "--enforce-eager", [&flags](std::int64_t) { flags.cuda.engine.graphs = false; },
      "with cuda: no graphs");
  app.add_flag("--share-gpu", flags.cuda.group.share_gpu, "with cuda: all ranks on one GPU");
}

Result<std::unique_ptr<EngineLoader>> make_loader(const Flags& flags, const Clock& clock) {
  if (flags.device == "cpu") return make_cpu_loader(flags.executor, clock);
  CudaExecutorOptions options = flags.cuda;
  options.collective_fd = flags.executor.collective_fd;
  options.group.rank = flags.executor.rank;
  options.group.world_size = flags.executor.world_size;
  options.group.device = options.group.share_gpu ? 0 : options.group.rank;
  options.engine.engine = flags.executor.engine;
  options.engine.device = options.group.device;
  options.engine.float32 = flags.dtype == "float32";
  options.engine.dummy = flags.load_format == "dummy";
  options.engine.verify = verify_kernel(flags.verify_kernel);
  return make_cuda_loader(options, clock);
}

// More threads than cores would wait for each other in every step.
int usable_threads(const CpuExecutorOptions& options) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int asked = options.engine.threads;
  if (asked == 0) return std::max(1, cores / options.world_size);
  if (asked > cores) spdlog::warn("--threads {}: there are {} cores, which are used", asked, cores);
  return std::min(asked, cores);
}

int run(const Flags& flags) {
  ProcessRuntime runtime;
  auto loader = make_loader(flags, runtime.clock());  // before any thread
  if (!loader.ok()) {
    spdlog::critical("{}", describe(loader.error()));
    return static_cast<int>(WorkerExit::failed);
  }
  SeededRandom random(entropy_seed());
  DealerLink::Options connection;
  connection.role = Role::worker;
  connection.rank = static_cast<std::uint16_t>(flags.executor.rank);
  connection.endpoint = flags.endpoint;
  auto link = DealerLink::connect(runtime, random, connection);
  if (!link.ok()) {
    spdlog::critical("{}", describe(link.error()));
    return static_cast<int>(WorkerExit::failed);
  }
  ThreadedExecutor executor(std::move(loader).value(), runtime.clock(),
                            [&runtime](auto task) { runtime.post(std::move(task)); });
  WorkerConfig config;
  config.epoch = flags.epoch;
  config.rank = connection.rank;
  config.world_size = static_cast<std::uint16_t>(flags.executor.world_size);
  config.pid = getpid();
  config.build = build_identity();
  std::optional<WorkerExit> status;
  Instant ended_at{};
  Worker worker(config, **link, runtime.clock(), executor, [&](WorkerExit code) {
    status = code;
    ended_at = runtime.clock().now();
  });
  (*link)->attach(worker);
  runtime.on_tick([&](Instant now) {
    if (status && now - ended_at >= kFarewell) runtime.stop();
  });
  runtime.post([&] { worker.start(); });
  runtime.run();
  // A thread that is stuck in a step must not keep the process alive.
  stop_log();
  std::_Exit(static_cast<int>(status.value_or(WorkerExit::failed)));
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  using namespace copse;
  follow_parent(SIGKILL);  // a worker whose parent is gone holds memory for nobody
  Flags flags;
  const int launched_as = rank_of_environment();
  if (launched_as >= 0) flags.executor.rank = launched_as;
  CLI::App app("copse-worker: one rank of the tensor-parallel group");
  declare(app, flags);
  declare_device(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  if (flags.executor.rank >= flags.executor.world_size) {
    std::fprintf(stderr, "--rank must be below --tp\n");
    return kUsage;
  }
  if (flags.executor.world_size > 1 && flags.executor.collective_fd < 0) {
    std::fprintf(stderr, "--collective-fd is needed by a group of several ranks\n");
    return kUsage;
  }
  start_log({"worker " + std::to_string(flags.executor.rank), flags.log_level, ""});
  flags.executor.engine.threads = usable_threads(flags.executor);
  return run(flags);
}
