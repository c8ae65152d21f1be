#pragma once
// The gateway's command line.
#include <cstdint>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace copse {

struct GatewayOptions {
  std::string endpoint;  // of the coordinator: ipc://…/gateways
  std::string model;     // folder with the tokenizer's files
  std::string served_model_name;
  std::uint32_t max_model_len = 0;  // asked of the workers; 0: nothing
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: a free one
  std::string port_file;
  std::string log_level = "info";
  std::string log_file;
};

void declare(CLI::App& app, GatewayOptions& options);
// The name that clients use: the flag, else the model folder's own name.
std::string served_name(const GatewayOptions& options);
// Writes the port so that a reader sees all of it or nothing. io: it cannot be written.
Status write_port_file(const std::string& path, std::uint16_t port);

}  // namespace copse
