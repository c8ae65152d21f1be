// round_bench: the operations of a round at the embedded pair's shapes and at a large vocabulary.
#include <benchmark/benchmark.h>

BENCHMARK_MAIN();
