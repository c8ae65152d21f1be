#pragma once
// What /metrics says, in Prometheus' text format 0.0.4. Counts of the engine come from its last
// status; latencies and finished requests are the gateway's own.
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/messages/to_gateway.h"

namespace copse {

// Suffixes follow vLLM's names, so that dashboards carry over by replacing the prefix.
class Metrics {
 public:
  explicit Metrics(std::string model);
  ~Metrics();

  void first_token(Duration since_arrival);
  // `tokens` came together, this long after those before them.
  void next_tokens(Duration since_previous, std::size_t tokens);
  // Once per choice that reached its end; abort counts those whose client left.
  void finished(FinishReason reason, Duration since_arrival);
  void refused(int status);

  // `status` may be null: nothing is known of the engine yet.
  std::string text(const EngineStatus* status, bool connected, std::size_t connections) const;

 private:
  struct Own;
  std::unique_ptr<Own> own_;
};

}  // namespace copse
