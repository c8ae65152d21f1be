// copse-gateway: the REST interface of one coordinator.
#include <CLI/CLI.hpp>
#include <csignal>
#include <string>

#include "base/log.h"
#include "base/process.h"
#include "gateway/options.h"
#include "gateway/served_text_model.h"
#include "gateway/server.h"

namespace {

constexpr int kUsage = 2;
constexpr int kBadModel = 3;  // as of a worker: the next start would end the same way

int serve(const copse::GatewayOptions& options) {
  const auto model = copse::ServedTextModel::load(options.model);
  if (!model.ok()) {
    spdlog::critical("the model's tokenizer: {}", describe(model.error()));
    return kBadModel;
  }
  return copse::run_gateway(options, **model);
}

}  // namespace

int main(int argc, char** argv) {
  copse::follow_parent(SIGTERM);  // a gateway whose `copse serve` is gone serves nobody
  copse::GatewayOptions options;
  CLI::App app("copse-gateway: OpenAI's API in front of one coordinator");
  copse::declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  copse::start_log({"gateway", options.log_level, options.log_file});
  const int status = serve(options);
  copse::stop_log();
  return status;
}
