#pragma once
// --config FILE: a YAML map whose keys are the long flags without their dashes.
#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"

namespace copse::cli {

// Gives every key of the file to the option of that name, unless the command line already did. An
// unknown key, a nested value or one that the option refuses is an error that names the key.
Status apply_yaml_config(const std::string& path, CLI::App& app);

}  // namespace copse::cli
