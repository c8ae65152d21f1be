// The main of kernel benchmarks: says the machine's ceilings before the table.
#include <cstdio>
#include <string>

#include "kernels/common/bench.h"

namespace {

std::string giga(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f G", value / 1e9);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace copse::kernels::bench;
  benchmark::AddCustomContext("multiply-add FLOP/s", giga(peak_flops()));
  benchmark::AddCustomContext("last-level cache B/s", giga(cache_bandwidth()));
  benchmark::AddCustomContext("memory B/s", giga(memory_bandwidth()));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
