// copse: the command line. Standard output holds results alone (with --json, one JSON object);
// progress and logs go to standard error.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "tools/cli/commands.h"
#include "tools/cli/yaml_config.h"

namespace copse::cli {
namespace {

struct Command {
  CLI::App* app;
  Run run;
};

// --json may stand anywhere, also on a line that does not parse.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json") return true;
  }
  return false;
}

int report(const std::string& message, int status, bool json) {
  if (json) {
    std::printf("%s\n", dump_json({{"error", {{"message", message}}}}).c_str());
  } else {
    std::fprintf(stderr, "copse: %s\n", message.c_str());
  }
  return status;
}

int report(const Outcome& outcome, bool json) {
  if (outcome.ok()) return outcome.status();
  return report(describe(outcome.error().error), outcome.status(), json);
}

Command add(CLI::App& app, const char* name, const char* text, Run (*add_command)(CLI::App&)) {
  CLI::App* sub = app.add_subcommand(name, text);
  Run run = add_command(*sub);
  sub->add_option("--config", "YAML file whose keys are these flags; a flag here wins");
  return {sub, std::move(run)};
}

// Takes its arguments to another program as they are, so it has no flag of its own.
Command add_rank_of(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("rank-of", "One rank of a group alone on one GPU");
  return {sub, add_bench_rank_of(*sub)};
}

int run_command(const Command& command, bool json) {
  const CLI::Option* config = command.app->get_option_no_throw("--config");
  if (config != nullptr && config->count() > 0) {
    const Status applied = apply_yaml_config(config->as<std::string>(), *command.app);
    if (!applied.ok()) return report(applied.error(), json);
  }
  start_log({.process = "copse", .level = "warn", .file = ""});
  const Outcome outcome = command.run();
  stop_log();
  return report(outcome, json);
}

int run(int argc, char** argv) {
  CLI::App app{"copse serves DeepSeek-V3 / Kimi-K2 class models with tree speculative decoding"};
  app.set_version_flag("--version", std::string("copse ") + kVersion);
  app.require_subcommand(1);
  CLI::App* bench = app.add_subcommand("bench", "Measurements of this machine");
  bench->require_subcommand(1);
  const std::vector<Command> commands{
      add(app, "serve", "Start coordinator, workers and the REST gateway", add_serve),
      add(app, "generate", "Continue one prompt, without HTTP", add_generate),
      add(app, "chat", "Talk to the model in the terminal", add_chat),
      add(app, "score", "Logits of a given text and tree (teacher-forced)", add_score),
      add(app, "inspect", "A checkpoint's shapes, sharding and memory per rank", add_inspect),
      add(*bench, "context", "Speed by context length; two configurations with --ab",
          add_bench_context),
      add_rank_of(*bench)};
  const bool json = wants_json(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0 || !json) {
      const int status = app.exit(error);
      return status == 0 ? 0 : kUsage;
    }
    return report(error.what(), kUsage, json);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return run_command(command, json);
  }
  return kUsage;
}

}  // namespace
}  // namespace copse::cli

int main(int argc, char** argv) {
  return copse::cli::run(argc, argv);
}
