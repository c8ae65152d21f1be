#pragma once
// How far each rank has loaded, as one line on a terminal's standard error.
#include <string>

#include "transport/messages/to_gateway.h"

namespace copse::cli {

// "loading  42% [########------------]  rank 0  51%  rank 1  33% ..."
std::string render_progress(const EngineStatus& status);

// Redraws in place on a terminal; elsewhere prints only when a tenth is full. Silent if not
// `enabled`.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled);
  void show(const EngineStatus& status);
  void finish();

 private:
  bool enabled_;
  bool terminal_;
  int last_tenth_ = -1;
  bool drawn_ = false;
};

}  // namespace copse::cli
