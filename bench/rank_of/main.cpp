// copse-rank-of: one rank of a group alone on one GPU, with random weights. `copse bench rank-of`
// runs it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "base/json.h"
#include "bench/rank_of/rank_of.h"

namespace copse {
namespace {

void print(const RankOfOptions& options, const RankOfTable& table) {
  std::printf("%s, one rank of %d of %s, %.1f GB of random weights, collectives left out\n",
              table.device.c_str(), options.tp, options.model.c_str(), table.weight_bytes / 1e9);
  std::printf(
      "context nodes   step us  floor us  ratio  experts  attention  routed    dense     "
      "rest  sampling   (us, with events between)\n");
  for (const RankOfRow& row : table.rows) {
    const auto part = [&](PassPart p) { return row.split_us[static_cast<std::size_t>(p)]; };
    std::printf("%7d %5d %9.1f %9.1f %6.2f %8.1f %10.1f %7.1f %8.1f %8.1f %9.1f\n", row.context,
                row.nodes, row.step_us, row.floor_us, row.step_us / row.floor_us,
                row.experts_touched, part(PassPart::attention), part(PassPart::experts),
                part(PassPart::dense), part(PassPart::rest), part(PassPart::sampling));
  }
}

Json to_json(const RankOfOptions& options, const RankOfTable& table) {
  Json rows = Json::array();
  for (const RankOfRow& row : table.rows) {
    const auto part = [&](PassPart p) { return row.split_us[static_cast<std::size_t>(p)]; };
    rows.push_back({{"context", row.context},
                    {"nodes", row.nodes},
                    {"step_us", row.step_us},
                    {"floor_us", row.floor_us},
                    {"bytes", row.bytes},
                    {"experts_touched", row.experts_touched},
                    {"attention_us", part(PassPart::attention)},
                    {"experts_us", part(PassPart::experts)},
                    {"dense_us", part(PassPart::dense)},
                    {"rest_us", part(PassPart::rest)},
                    {"sampling_us", part(PassPart::sampling)}});
  }
  return {{"device", table.device},
          {"model", options.model},
          {"tp", options.tp},
          {"layers", options.layers},
          {"weights", "random"},
          {"routing", "independent, uniform"},
          {"collectives", "left out"},
          {"replays", options.replays},
          {"weight_bytes", table.weight_bytes},
          {"rows", rows}};
}

}  // namespace
}  // namespace copse

int main(int argc, char** argv) {
  using namespace copse;
  RankOfOptions options;
  std::string out;
  CLI::App app("copse-rank-of: one rank of a tensor-parallel group, alone, with random weights");
  app.add_option("--model", options.model, "folder with a config.json")->required();
  app.add_option("--tp", options.tp, "ranks of the group")->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--layers", options.layers, "only the first so many; 0: all");
  app.add_option("--contexts", options.contexts, "committed tokens")->delimiter(',');
  app.add_option("--nodes", options.nodes, "rows to verify, the root included")->delimiter(',');
  app.add_option("--replays", options.replays, "of each graph; the median is shown")
      ->check(CLI::Range(1, 1000));
  app.add_option("--out", out, "JSON file");
  CLI11_PARSE(app, argc, argv);
  const auto table = rank_of(options);
  if (!table.ok()) {
    std::fprintf(stderr, "copse-rank-of: %s\n", describe(table.error()).c_str());
    return 1;
  }
  print(options, *table);
  if (!out.empty()) std::ofstream(out) << dump_json(to_json(options, *table)) << "\n";
  return 0;
}
