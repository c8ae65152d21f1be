// copse-coordinator: requests, scheduling, and the supervision of the workers of one host.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "coordinator/coordinator.h"
#include "coordinator/process_spawner.h"
#include "transport/actor/run_directory.h"
#include "transport/actor/runtime.h"
#include "transport/actor/zmq_links.h"
#include "transport/client/engine_client.h"

namespace copse {
namespace {

constexpr int kUsage = 2;
constexpr int kCannotStart = 1;

struct Flags {
  std::string run_dir;
  std::string log_level = "info";
  std::string log_dir;
  std::string worker;  // path of copse-worker
  int tp = 1;
  SchedulerOptions scheduler;
  std::vector<std::string> worker_args;
};

// What stands behind `--` is the workers' alone.
std::vector<std::string> split_worker_args(int& argc, char** argv) {
  std::vector<std::string> rest;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--") continue;
    rest.assign(argv + i + 1, argv + argc);
    argc = i;
    break;
  }
  return rest;
}

void declare(CLI::App& app, Flags& flags) {
  const std::map<std::string, DraftMode> modes = {{"none", DraftMode::none},
                                                  {"chain", DraftMode::chain},
                                                  {"tree", DraftMode::tree},
                                                  {"auto", DraftMode::automatic}};
  app.add_option("--run-dir", flags.run_dir, "folder (0700) of the sockets")->required();
  app.add_option("--tp", flags.tp, "ranks of the tensor-parallel group")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--draft", flags.scheduler.draft, "none, chain, tree, or auto: decide per step")
      ->transform(CLI::CheckedTransformer(modes));
  app.add_option("--budget", flags.scheduler.node_budget, "draft nodes of a tree or chain")
      ->check(CLI::Range(1, limits::tree_nodes));
  app.add_option("--prefill-chunk", flags.scheduler.prefill_chunk, "prompt tokens of one step")
      ->check(CLI::Range(1, limits::tree_nodes));
  app.add_option("--max-num-seqs", flags.scheduler.max_sequences, "sequences of one step")
      ->check(CLI::Range(1, limits::batch_sequences));
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off");
  app.add_option("--log-dir", flags.log_dir, "folder of one log file per worker");
  app.add_option("--worker", flags.worker, "the worker program; else the one beside this one");
}

int report(const char* what, const Error& error) {
  spdlog::critical("{}: {}", what, describe(error));
  return kCannotStart;
}

int serve(const Flags& flags) {
  const Status folder = RunDirectory::check(flags.run_dir);
  if (!folder.ok()) return report("the run directory", folder.error());
  ProcessSpawnerOptions processes;
  processes.program = flags.worker;
  if (processes.program.empty()) {
    auto found = program_beside_self("copse-worker");
    if (!found.ok()) return report("the worker program", found.error());
    processes.program = *std::move(found);
  }
  processes.world_size = flags.tp;
  processes.endpoint = RunDirectory::workers_endpoint(flags.run_dir);
  processes.log_dir = flags.log_dir;
  processes.worker_args = flags.worker_args;

  ProcessRuntime runtime;
  auto link = RouterLink::bind(runtime, {Role::coordinator, 0, entropy_seed()},
                               {{Role::worker, processes.endpoint},
                                {Role::gateway, RunDirectory::gateways_endpoint(flags.run_dir)}});
  if (!link.ok()) return report("the sockets", link.error());
  ProcessSpawner spawner(runtime.io(), std::move(processes));
  CoordinatorOptions options;
  options.world_size = flags.tp;
  options.build = build_identity();
  options.scheduler = flags.scheduler;
  Coordinator coordinator(options, **link, spawner, runtime.clock());

  (*link)->attach(coordinator);
  runtime.on_tick([&](Instant) {
    if (coordinator.exit_code()) runtime.stop();
  });
  runtime.on_stop_signal([&](int) {
    coordinator.drain();
    if (coordinator.exit_code()) runtime.stop();
  });
  runtime.post([&] { coordinator.start(); });
  runtime.run();
  return coordinator.exit_code().value_or(kCannotStart);
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  using namespace copse;
  follow_parent(SIGTERM);  // a coordinator whose `copse serve` is gone serves nobody
  Flags flags;
  flags.worker_args = split_worker_args(argc, argv);
  CLI::App app("copse-coordinator: plans the steps of one tensor-parallel group");
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  start_log({"coordinator", flags.log_level, ""});
  const int code = serve(flags);
  stop_log();
  return code;
}
