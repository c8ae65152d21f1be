#pragma once
// The flags that say which model runs, on what, and how it drafts. The same names stand as keys in
// a YAML file given with --config; a flag on the command line wins over the file.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/cli/device_options.h"

namespace copse::cli {

struct EngineOptions {
  std::string model;    // folder of the target's checkpoint
  std::string drafter;  // folder of the DFlash drafter; empty: no drafting
  int tp = 1;
  DeviceOptions device;
  std::string draft = "auto";  // none, chain, tree, auto
  int budget = 0;              // nodes of a tree or chain; 0: the server's choice
  int threads = 0;             // per worker; 0: cores / tp, at least 1
  int max_num_seqs = 16;
  int max_model_len = 0;  // 0: what the model allows
  int kv_memory_mb = 0;   // 0: enough for the slots at a moderate context
  int prefill_chunk = 0;  // 0: the server's choice
  std::string log_level = "warn";
};

void add_engine_options(CLI::App& app, EngineOptions& options);

// Checks what one flag cannot see of another, and fills in what depends on the machine: threads
// that it does not have are taken back, with a warning.
Status complete(EngineOptions& options);
// `threads`, but no more than this process has cores; warns when it takes some back. More would
// wait for each other in every step.
int usable_threads(int threads);

// Arguments of copse-coordinator for these options, the workers' behind "--".
std::vector<std::string> coordinator_arguments(const EngineOptions& options,
                                               const std::string& run_directory);

}  // namespace copse::cli
