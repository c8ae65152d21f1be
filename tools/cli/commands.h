#pragma once
// The subcommands of `copse`. Each adds its flags to an own CLI11 app and returns what runs it.
#include <CLI/CLI.hpp>
#include <functional>

#include "tools/cli/outcome.h"

namespace copse::cli {

using Run = std::function<Outcome()>;

Run add_serve(CLI::App& app);
Run add_generate(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_score(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_bench_context(CLI::App& app);
Run add_bench_rank_of(CLI::App& app);

}  // namespace copse::cli
