#pragma once
// What the flags ask of the models' folders, looked at before any process is started.
#include <string>

#include "tools/cli/engine_options.h"
#include "tools/cli/outcome.h"

namespace copse::cli {

// Is there a folder with a config.json? `flag` names it in the error.
Outcome check_folder(const char* flag, const std::string& folder);

// The configs of target and drafter can be read and fit each other, and they allow the sequence
// length that is asked for.
Outcome check_models(const EngineOptions& options);

}  // namespace copse::cli
