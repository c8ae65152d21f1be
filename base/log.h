#pragma once
// Logs go to standard error (and a rotating file if asked): standard output belongs to results.
// Prompts and generated text are never logged. Asynchronous, the oldest line is dropped when full.
#include <spdlog/spdlog.h>

#include <string>

namespace copse {

struct LogOptions {
  std::string process;         // "worker 3": the prefix of every line
  std::string level = "info";  // trace debug info warn error off
  std::string file;            // empty: standard error only
};

// Called once, early in main. Never throws; a bad level or file falls back and says so.
void start_log(const LogOptions& options);
// Flushes what is queued; called before exit.
void stop_log();

}  // namespace copse
