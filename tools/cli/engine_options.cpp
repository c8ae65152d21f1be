#include "tools/cli/engine_options.h"

#include <sched.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"

namespace copse::cli {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

void add_engine_options(CLI::App& app, EngineOptions& o) {
  app.add_option("--model,--model-path", o.model, "Folder of the target's checkpoint");
  app.add_option("--drafter", o.drafter, "Folder of the DFlash drafter's checkpoint");
  app.add_option("--tp,--tensor-parallel-size", o.tp, "Worker processes, one shard each")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  add_device_options(app, o.device);
  add_engine_device_options(app, o.device);
  add_load_format(app, o.device);
  app.add_option("--draft", o.draft, "none, chain, tree or auto (chosen per request and step)")
      ->check(CLI::IsMember({"none", "chain", "tree", "auto"}));
  app.add_option("--budget", o.budget, "Draft nodes per round of tree or chain; 0: 16")
      ->check(CLI::Range(0, limits::tree_nodes));
  app.add_option("--threads", o.threads, "Compute threads per worker; 0: cores / tp")
      ->check(CLI::Range(0, limits::worker_threads));
  app.add_option("--max-num-seqs,--max-running-requests", o.max_num_seqs,
                 "Sequences that decode together")
      ->check(CLI::Range(1, limits::batch_sequences));
  app.add_option("--max-model-len,--context-length,-c", o.max_model_len,
                 "Longest sequence in tokens; 0: what the model allows")
      ->check(CLI::Range(0, limits::sequence_tokens));
  app.add_option("--kv-memory-mb", o.kv_memory_mb, "Memory of the KV pages per worker; 0: chosen")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--prefill-chunk", o.prefill_chunk, "Prompt tokens per step; 0: chosen")
      ->check(CLI::Range(0, limits::tree_nodes));
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
}

int usable_threads(int threads) {
  const int cores = usable_cores();
  if (threads <= cores) return threads;
  spdlog::warn("--threads {} is more than the {} cores here: {} are used", threads, cores, cores);
  return cores;
}

Status complete(EngineOptions& o) {
  const auto invalid = [](const char* field, const char* message) {
    return Error{ErrorCode::invalid_argument, field, message};
  };
  if (o.model.empty()) return invalid("--model", "is required");
  COPSE_RETURN_IF_ERROR(check_device(o.device, o.tp));
  if (o.drafter.empty() && (o.draft == "chain" || o.draft == "tree")) {
    return invalid("--drafter", "is required by --draft chain and --draft tree");
  }
  if (o.drafter.empty()) o.draft = "none";
  if (o.max_model_len == 1) {
    return invalid("--max-model-len", "must be 2 at least: a prompt token and one of the answer");
  }
  o.threads = o.threads == 0 ? std::max(1, usable_cores() / o.tp) : usable_threads(o.threads);
  return {};
}

std::vector<std::string> coordinator_arguments(const EngineOptions& o,
                                               const std::string& run_directory) {
  std::vector<std::string> arguments{
      "--run-dir",   run_directory, "--tp",           std::to_string(o.tp),
      "--draft",     o.draft,       "--max-num-seqs", std::to_string(o.max_num_seqs),
      "--log-level", o.log_level};
  const auto add = [&arguments](const char* flag, const std::string& value) {
    arguments.insert(arguments.end(), {flag, value});
  };
  if (o.budget > 0) add("--budget", std::to_string(o.budget));
  if (o.prefill_chunk > 0) add("--prefill-chunk", std::to_string(o.prefill_chunk));
  arguments.push_back("--");
  add("--model", o.model);
  // With --draft none the drafter would only cost memory and a pass per prompt.
  if (!o.drafter.empty() && o.draft != "none") add("--drafter", o.drafter);
  add("--threads", std::to_string(o.threads));
  add("--max-num-seqs", std::to_string(o.max_num_seqs));
  if (o.max_model_len > 0) add("--max-model-len", std::to_string(o.max_model_len));
  if (o.kv_memory_mb > 0) add("--kv-memory-mb", std::to_string(o.kv_memory_mb));
  const std::vector<std::string> device = device_arguments(o.device);
  arguments.insert(arguments.end(), device.begin(), device.end());
  add("--log-level", o.log_level);
  return arguments;
}

}  // namespace copse::cli
