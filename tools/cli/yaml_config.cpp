#include "tools/cli/yaml_config.h"

#include <yaml-cpp/yaml.h>

#include "base/json.h"

namespace copse::cli {
namespace {

Status apply_key(const std::string& key, const YAML::Node& value, CLI::App& app) {
  const auto invalid = [&key](const std::string& message) {
    return Error{ErrorCode::invalid_argument, key, message};
  };
  CLI::Option* option = app.get_option_no_throw("--" + key);
  if (option == nullptr || key == "config") return invalid("is no key of this command");
  if (!value.IsScalar()) return invalid("must be a single value");
  if (option->count() > 0) return {};  // the command line wins
  try {
    option->add_result(value.Scalar());
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    return invalid(error.what());
  }
  return {};
}

}  // namespace

Status apply_yaml_config(const std::string& path, CLI::App& app) {
  COPSE_TRY(const std::string text, read_file(path, limits::config_bytes, FileKind::any));
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return Error{ErrorCode::malformed, "--config",
                 "line " + std::to_string(error.mark.line + 1) + ": " + error.msg};
  }
  if (!root.IsMap()) return Error{ErrorCode::malformed, "--config", "must be a map of keys"};
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) return Error{ErrorCode::malformed, "--config", "a key is no text"};
    COPSE_RETURN_IF_ERROR(apply_key(entry.first.Scalar(), entry.second, app));
  }
  return {};
}

}  // namespace copse::cli
