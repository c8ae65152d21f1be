#include "gateway/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace copse {

void declare(CLI::App& app, GatewayOptions& options) {
  app.add_option("--endpoint", options.endpoint, "the coordinator's ipc:// endpoint for gateways")
      ->required();
  app.add_option("--model", options.model, "folder of the model: its tokenizer is read")
      ->required();
  app.add_option("--served-model-name", options.served_model_name,
                 "the model's id in requests; else the folder's name");
  app.add_option("--max-model-len", options.max_model_len,
                 "what the workers were asked for: a shorter context is warned of");
  app.add_option("--host", options.host, "address to listen on");
  app.add_option("--port", options.port, "port to listen on; 0 takes a free one");
  app.add_option("--port-file", options.port_file, "file that gets the port, once it is open");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off");
  app.add_option("--log-file", options.log_file, "also log to this file");
}

std::string served_name(const GatewayOptions& options) {
  if (!options.served_model_name.empty()) return options.served_model_name;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::weakly_canonical(options.model, error);
  if (error) folder = options.model;
  const std::string name = folder.filename().string();
  return name.empty() ? "model" : name;
}

Status write_port_file(const std::string& path, std::uint16_t port) {
  const std::string partial = path + ".partial";
  std::error_code error;
  {
    std::ofstream out(partial, std::ios::trunc);
    out << port << '\n';
    out.flush();
    if (!out) return Error{ErrorCode::io, "port-file", "cannot be written"};
  }
  std::filesystem::rename(partial, path, error);
  if (error) return Error{ErrorCode::io, "port-file", "cannot be written"};
  return {};
}

}  // namespace copse
