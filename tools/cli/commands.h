#pragma once
// The subcommands of `copse`. Each adds its flags to an own CLI11 app and returns what runs it: the
// process's exit status, or the error that main prints.
#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace copse::cli {

using Run = std::function<Result<int>()>;

Run add_serve(CLI::App& app);
Run add_generate(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_score(CLI::App& app);
Run add_inspect(CLI::App& app);

}  // namespace copse::cli
