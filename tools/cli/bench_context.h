#pragma once
// `copse bench context`: how long until the first token, and how fast afterwards, by context
// length; of one configuration, or of two that differ in one switch.
#include <string>
#include <vector>

#include "tools/cli/bench_ab.h"
#include "tools/cli/bench_prompt.h"
#include "tools/cli/bench_table.h"

namespace copse::cli {

struct ContextPlan {
  std::vector<int> contexts{1024, 4096, 16384, 65536};  // prompt tokens
  int gen_tokens = 16;
  int prompts = 1;  // a context length
  int warmup = 1;   // requests at the shortest length that are not counted
};

struct BenchContextOptions {
  EngineOptions engine;
  ContextPlan plan;
  PromptOptions prompt;
  std::string ab;   // KEY=A,B; empty: one configuration
  int rounds = 0;   // engines a side, in turns; 0: 1, or 3 with ab
  std::string out;  // JSON file; empty: none
  bool json = false;
};

// One configuration and what was measured of it.
struct BenchSide {
  std::string name;  // "verify-kernel=fast"; empty if it is the only one
  EngineOptions engine;
  std::vector<ContextSample> samples;
  std::vector<int> skipped;
  int context_tokens = 0;
  Json engines = Json::array();  // facts of each round's
};

// One side, or two with `ab`: completed, and compared key by key. Nothing is started.
Result<std::vector<BenchSide>> bench_sides(const BenchContextOptions& options);

}  // namespace copse::cli
