#pragma once
// What a measurement was made on, for its record. Names of hardware, no names of hosts or people.
#include <string>

#include "base/json.h"

namespace copse::cli {

// cpu, cores that this process may use, memory_gb, system; with `gpu` also gpus (name, memory,
// driver of each, as nvidia-smi tells) and CUDA_VISIBLE_DEVICES. What cannot be read is "unknown".
Json machine_facts(bool gpu);

// UTC, "2026-01-31T12:00:00Z".
std::string date_now();

}  // namespace copse::cli
