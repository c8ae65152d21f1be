#pragma once
// The flags that say which device computes and how; all but --device are of a GPU alone.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace copse::cli {

struct DeviceOptions {
  std::string device = "cpu";
  std::string dtype = "bfloat16";    // of weights that are not quantized, caches and activations
  std::string load_format = "auto";  // or dummy: random weights, a config.json is enough
  std::string verify_kernel = "fast";
  double mem_fraction = 0.88;  // of the device's memory
  bool eager = false;          // no graphs
  bool share_gpu = false;      // all ranks on one device: right, and slow
};

// Of everything that computes.
void add_device_options(CLI::App& app, DeviceOptions& options);
// Of an engine, which plans its memory and captures graphs; scoring does neither.
void add_engine_device_options(CLI::App& app, DeviceOptions& options);
// Apart, since what checks weights has no use for random ones.
void add_load_format(CLI::App& app, DeviceOptions& options);

// Random weights are the GPU's alone. With cuda: that this build has it and this machine a GPU a
// rank, in one sentence otherwise. Nothing of CUDA is started in this process.
Status check_device(const DeviceOptions& options, int ranks);

// Arguments of copse-worker for these options; none for the CPU.
std::vector<std::string> device_arguments(const DeviceOptions& options);

}  // namespace copse::cli
