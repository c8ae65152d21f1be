#pragma once
// The flags of one request: how much to generate, and how to draw it.
#include <CLI/CLI.hpp>

#include "base/result.h"
#include "transport/messages/to_coordinator.h"

namespace copse::cli {

struct SamplingOptions {
  int max_tokens = 64;
  double temperature = 0;
  double top_p = 1;
  double min_p = 0;
  int top_k = 0;
  std::uint64_t seed = 0;
  bool ignore_eos = false;
};

void add_sampling_options(CLI::App& app, SamplingOptions& options);

// The request without its prompt.
Submit to_submit(const SamplingOptions& options);

}  // namespace copse::cli
