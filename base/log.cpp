#include "base/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <vector>

namespace copse {
namespace {

constexpr std::size_t kQueuedLines = 8192;
constexpr std::size_t kFileBytes = 8u << 20;
constexpr std::size_t kFiles = 4;

}  // namespace

void start_log(const LogOptions& options) {
  try {
    spdlog::init_thread_pool(kQueuedLines, 1);
    std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_sink_mt>()};
    std::string complaint;
    if (!options.file.empty()) {
      try {
        sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file,
                                                                               kFileBytes, kFiles));
      } catch (const spdlog::spdlog_ex&) {
        complaint = "the log file cannot be written; logging to standard error only";
      }
    }
    auto logger = std::make_shared<spdlog::async_logger>(
        options.process, sinks.begin(), sinks.end(), spdlog::thread_pool(),
        spdlog::async_overflow_policy::overrun_oldest);
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L [%n] %v");
    logger->set_level(spdlog::level::from_str(options.level));
    logger->flush_on(spdlog::level::warn);
    logger->set_error_handler([](const std::string&) {});  // a full disk must not stop serving
    spdlog::set_default_logger(std::move(logger));
    if (!complaint.empty()) spdlog::warn(complaint);
  } catch (const spdlog::spdlog_ex&) {
    // The default logger of spdlog stays: synchronous, standard output's fallback is not used.
  }
}

void stop_log() {
  spdlog::shutdown();
}

}  // namespace copse
