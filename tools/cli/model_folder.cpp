#include "tools/cli/model_folder.h"

#include <filesystem>

#include "base/limits.h"
#include "model/config/drafter_config.h"
#include "model/config/model_config.h"

namespace copse::cli {
namespace {

Outcome check_length(const EngineOptions& options, int most, const char* whose) {
  if (options.max_model_len <= most) return kSuccess;
  return Error{ErrorCode::invalid_argument, "--max-model-len",
               std::to_string(options.max_model_len) + " is above max_position_embeddings of the " +
                   whose + ", which is " + std::to_string(most)};
}

}  // namespace

Outcome check_folder(const char* flag, const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/config.json", ignored)) return kSuccess;
  return of_model({ErrorCode::not_found, flag, "is no folder with a config.json"});
}

Outcome check_models(const EngineOptions& options) {
  COPSE_RETURN_IF_ERROR(check_folder("--model", options.model));
  COPSE_TRY_MODEL(const ModelConfig target, read_model_config(options.model));
  COPSE_RETURN_IF_ERROR(check_length(options, target.positions_max, "target"));
  if (options.drafter.empty()) return kSuccess;
  COPSE_RETURN_IF_ERROR(check_folder("--drafter", options.drafter));
  COPSE_TRY_MODEL(const DrafterConfig drafter, read_drafter_config(options.drafter));
  const Status fits = check_drafter_fits(drafter, target);
  if (!fits.ok()) return of_model(fits.error());
  if (options.draft == "none") return kSuccess;  // it is not loaded
  return check_length(options, drafter.positions_max, "drafter");
}

}  // namespace copse::cli
