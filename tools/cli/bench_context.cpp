#include "tools/cli/bench_context.h"

#include <cstdio>
#include <fstream>
#include <memory>

#include "base/limits.h"
#include "model/config/model_config.h"
#include "tools/cli/bench_run.h"
#include "tools/cli/commands.h"
#include "tools/cli/machine.h"
#include "tools/cli/model_folder.h"
#include "transport/messages/frame.h"

namespace copse::cli {
namespace {

constexpr int kMostRounds = 1000;

Outcome measure(const BenchContextOptions& options, const BenchPrompts& prompts,
                std::vector<BenchSide>& sides) {
  for (int round = 0; round < options.rounds; ++round) {
    for (BenchSide& side : sides) {
      std::fprintf(stderr, "round %d of %d %s\n", round + 1, options.rounds, side.name.c_str());
      ContextRun run(side.engine, options.plan, prompts, round);
      COPSE_RETURN_IF_ERROR(run.measure());
      side.samples.insert(side.samples.end(), run.samples().begin(), run.samples().end());
      side.skipped = run.skipped();
      side.context_tokens = run.context_tokens();
      side.engines.push_back(run.facts());
    }
  }
  return kSuccess;
}

Json side_json(const BenchSide& side) {
  return {{"name", side.name},       {"configuration", configuration(side.engine)},
          {"engines", side.engines}, {"rows", to_json(summarize(side.samples))},
          {"skipped", side.skipped}, {"samples", to_json(side.samples)}};
}

Json record(const BenchContextOptions& options, const BenchPrompts& prompts,
            const std::vector<BenchSide>& sides) {
  Json json = {{"bench", "context"},
               {"date", date_now()},
               {"build", build_identity()},
               {"machine", machine_facts(options.engine.device.device == "cuda" ||
                                         sides.back().engine.device.device == "cuda")},
               {"method",
                {{"contexts", options.plan.contexts},
                 {"gen_tokens", options.plan.gen_tokens},
                 {"prompts", options.plan.prompts},
                 {"warmup", options.plan.warmup},
                 {"rounds", options.rounds},
                 {"prompt", prompts.description()},
                 {"temperature", 0},
                 {"prefill_tok_s", "prompt_tok / ttft_s"},
                 {"decode_tok_s", "(gen_tok - 1) / decode_wall_s: the first token is prefill's"},
                 {"rows", "medians of the samples"}}},
               {"sides", Json::array()}};
  for (const BenchSide& side : sides) json["sides"].push_back(side_json(side));
  if (sides.size() == 2) {
    json["ab"] = {{"switch", options.ab},
                  {"order", "in turns, A first"},
                  {"a_over_b", to_json(compare_sides(sides[0].samples, sides[1].samples))}};
  }
  return json;
}

void print(const BenchContextOptions& options, const BenchPrompts& prompts,
           const std::vector<BenchSide>& sides) {
  std::printf("prompts: %s; %d generated; medians of %d; decode without the first token\n",
              prompts.description().c_str(), options.plan.gen_tokens,
              options.rounds * options.plan.prompts);
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const BenchSide& side = sides[i];
    if (sides.size() == 2) std::printf("%s: %s\n", i == 0 ? "A" : "B", side.name.c_str());
    std::printf("%s", render(summarize(side.samples)).c_str());
    for (const int context : side.skipped) {
      std::printf("%8d skipped: with %d generated it is beyond this engine's context of %d\n",
                  context, options.plan.gen_tokens, side.context_tokens);
    }
  }
  if (sides.size() < 2) return;
  std::printf("%s", render(compare_sides(sides[0].samples, sides[1].samples)).c_str());
}

Outcome run(BenchContextOptions& options) {
  if (options.rounds == 0) options.rounds = options.ab.empty() ? 1 : 3;
  COPSE_TRY(std::vector<BenchSide> sides, bench_sides(options));
  for (const BenchSide& side : sides) COPSE_RETURN_IF_ERROR(check_models(side.engine));
  COPSE_TRY_MODEL(const ModelConfig config, read_model_config(options.engine.model));
  COPSE_TRY(const BenchPrompts prompts,
            BenchPrompts::make(options.prompt, options.engine.model, config.vocabulary));
  std::ofstream file;  // opened first: no measurement is lost for the want of a folder
  if (!options.out.empty()) file.open(options.out);
  if (!file) return Error{ErrorCode::io, "--out", "cannot be written"};

  COPSE_RETURN_IF_ERROR(measure(options, prompts, sides));
  const Json json = record(options, prompts, sides);
  if (!options.out.empty()) file << dump_json(json, 1) << "\n" << std::flush;
  if (!file) return Error{ErrorCode::io, "--out", "cannot be written"};
  if (options.json) {
    std::printf("%s\n", dump_json(json).c_str());
  } else {
    print(options, prompts, sides);
  }
  return kSuccess;
}

void add_plan(CLI::App& app, BenchContextOptions& o) {
  app.add_option("--contexts,--ctx", o.plan.contexts, "Prompt lengths in tokens: 1024,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, limits::sequence_tokens));
  app.add_option("--gen-tokens", o.plan.gen_tokens, "Tokens to generate per prompt")
      ->check(CLI::Range(2, limits::sequence_tokens));
  app.add_option("--prompts", o.plan.prompts, "Different prompts per length")
      ->check(CLI::Range(1, kMostRounds));
  app.add_option("--warmup", o.plan.warmup, "Requests before that are not counted")
      ->check(CLI::Range(0, kMostRounds));
  app.add_option("--prompt", o.prompt.kind,
                 "text of the model's own tokenizer, ids of a seeded stream, or auto")
      ->check(CLI::IsMember({"auto", "text", "ids"}));
  app.add_option("--prompt-file", o.prompt.text_file, "The text to repeat instead of ours");
  app.add_option("--seed", o.prompt.seed, "Of the stream of ids");
  app.add_option("--ab", o.ab,
                 "KEY=A,B: compare two values of one engine flag, in turns; refused if anything "
                 "else would differ");
  app.add_option("--rounds", o.rounds, "Engines per configuration; 0: 1, or 3 with --ab")
      ->check(CLI::Range(0, kMostRounds));
  app.add_option("--out", o.out, "JSON file with machine, date, configuration and samples");
  app.add_flag("--json", o.json, "Print that JSON instead of the table");
}

}  // namespace

Run add_bench_context(CLI::App& app) {
  auto options = std::make_shared<BenchContextOptions>();
  options->engine.max_num_seqs = 1;  // all of the cache is one sequence's
  add_engine_options(app, options->engine);
  add_plan(app, *options);
  return [options] { return run(*options); };
}

}  // namespace copse::cli
