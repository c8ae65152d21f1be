// `copse inspect`: what a checkpoint is, how it would be split, and what each rank would hold.
// Reads headers alone.
#include <cstdio>
#include <memory>
#include <string>

#include "base/json.h"
#include "model/memory_plan.h"
#include "tools/cli/commands.h"
#include "tools/cli/model_folder.h"

namespace copse::cli {
namespace {

struct InspectFlags {
  std::string model;
  std::string drafter;
  int tp = 1;
  int max_num_seqs = 16;
  bool json = false;
  bool tensors = false;
};

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::bf16:
      return "bf16";
    case Codec::f32:
      return "f32";
    case Codec::fp8_block:
      return "fp8 128x128";
    case Codec::int4_group:
      return "int4 g32";
  }
  return "?";
}

Json slices_json(const std::vector<PlannedSlice>& slices) {
  Json rows = Json::array();
  for (const PlannedSlice& s : slices) {
    rows.push_back({{"tensor", s.tensor},
                    {"codec", name_of(s.codec)},
                    {"shape", {s.rows, s.columns}},
                    {"rows", {s.row_range.begin, s.row_range.end}},
                    {"columns", {s.column_range.begin, s.column_range.end}},
                    {"file_bytes", s.file_bytes},
                    {"memory_bytes", s.memory_bytes}});
  }
  return rows;
}

Json rank_json(const RankReport& rank, bool tensors) {
  const RankMemory& m = rank.memory;
  Json json{{"rank", rank.shard.shard.rank},
            {"file_bytes", rank.file_bytes},
            {"weights_bytes", m.target_weights},
            {"workspace_bytes", m.target_workspace},
            {"scratch_bytes", m.latent_scratch},
            {"drafter_weights_bytes", m.drafter_weights},
            {"drafter_workspace_bytes", m.drafter_workspace},
            {"page_bytes", m.page()},
            {"fixed_bytes", m.fixed()}};
  if (tensors) {
    json["tensors"] = slices_json(rank.target);
    json["drafter_tensors"] = slices_json(rank.drafter);
  }
  return json;
}

Json config_json(const ModelConfig& c) {
  return {{"layers", c.layers},
          {"hidden", c.hidden},
          {"heads", c.heads},
          {"vocabulary", c.vocabulary},
          {"q_lora_rank", c.q_lora_rank},
          {"kv_lora_rank", c.kv_lora_rank},
          {"qk_nope_head_dim", c.nope_dim},
          {"qk_rope_head_dim", c.rope_dim},
          {"v_head_dim", c.value_dim},
          {"max_position_embeddings", c.positions_max}};
}

void print_table(const CheckpointReport& report, const InspectFlags& flags) {
  const ModelConfig& c = report.config;
  std::printf("%d layers, hidden %d, %d heads, latent %d + %d, vocabulary %d\n", c.layers, c.hidden,
              c.heads, c.kv_lora_rank, c.rope_dim, c.vocabulary);
  std::printf("%s over %d rank(s)\n\n",
              report.ranks.front().shard.whole_experts
                  ? "whole experts dealt out"
                  : "experts split along their inner dimension",
              flags.tp);
  std::printf("rank   weights MiB   drafter MiB   workspace MiB   scratch MiB   KiB a page\n");
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const RankReport& rank : report.ranks) {
    const RankMemory& m = rank.memory;
    std::printf("%4d %13.2f %13.2f %15.2f %13.2f %12.1f\n", rank.shard.shard.rank,
                mib(m.target_weights), mib(m.drafter_weights),
                mib(m.target_workspace + m.drafter_workspace), mib(m.latent_scratch),
                static_cast<double>(m.page()) / 1024);
  }
}

Outcome run(const InspectFlags& flags) {
  if (flags.model.empty()) return Error{ErrorCode::invalid_argument, "--model", "is required"};
  InspectOptions options;
  options.tp = flags.tp;
  options.slots = flags.max_num_seqs;
  options.target = {
      .rows_max = limits::step_rows, .logit_rows_max = limits::step_rows, .feature_layers = {}};
  options.drafter = {.sequences_max = flags.max_num_seqs, .context_rows_max = limits::step_rows};
  COPSE_RETURN_IF_ERROR(check_folder("--model", flags.model));
  if (!flags.drafter.empty()) COPSE_RETURN_IF_ERROR(check_folder("--drafter", flags.drafter));
  COPSE_TRY_MODEL(const CheckpointReport report,
                  inspect_checkpoint(flags.model, flags.drafter, options));
  if (flags.json) {
    Json ranks = Json::array();
    for (const RankReport& rank : report.ranks) ranks.push_back(rank_json(rank, flags.tensors));
    const Json json{{"config", config_json(report.config)},
                    {"tp", flags.tp},
                    {"whole_experts", report.ranks.front().shard.whole_experts},
                    {"ranks", std::move(ranks)}};
    std::printf("%s\n", dump_json(json).c_str());
    return 0;
  }
  print_table(report, flags);
  if (flags.tensors) {
    for (const PlannedSlice& s : report.ranks.front().target) {
      std::printf("%-64s %-12s [%d, %d]  rank 0: rows %d-%d, columns %d-%d\n", s.tensor.c_str(),
                  name_of(s.codec), s.rows, s.columns, s.row_range.begin, s.row_range.end,
                  s.column_range.begin, s.column_range.end);
    }
  }
  return 0;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.add_option("--model,--model-path", flags->model, "Folder of the target's checkpoint");
  app.add_option("--drafter", flags->drafter, "Folder of the drafter's checkpoint");
  app.add_option("--tp,--tensor-parallel-size", flags->tp, "Ranks to split it over")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--max-num-seqs", flags->max_num_seqs, "Sequences that decode together")
      ->check(CLI::Range(1, limits::batch_sequences));
  app.add_flag("--tensors", flags->tensors, "Every tensor with the part of it that a rank reads");
  app.add_flag("--json", flags->json, "Print one JSON object");
  return [flags] { return run(*flags); };
}

}  // namespace copse::cli
