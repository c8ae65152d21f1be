#pragma once
// The gateway's process: loop, link to the coordinator, listener, and an orderly end.
#include "gateway/options.h"
#include "gateway/text_model.h"

namespace copse {

// Serves until a signal. SIGTERM or SIGINT drains: not ready, no new connections, what runs may
// finish within limits::drain_ms, then 0. A second signal ends at once with 130. 1 if it cannot
// start, with one line that says why.
int run_gateway(const GatewayOptions& options, const TextModel& model);

}  // namespace copse
