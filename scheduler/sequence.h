#pragma once
// Step 2: the truth about one request: prompt, delivered tokens, how it is drawn, and what the
// plans on the way may still do to it. Device state is a cache of this.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "scheduler/draft_policy.h"
#include "transport/messages/to_coordinator.h"
#include "transport/messages/to_gateway.h"

namespace copse {

// The coordinator's own name for a request: unique over gateways and incarnations.
using SequenceId = std::uint64_t;

struct Sequence {
  SequenceId id = 0;
  std::vector<TokenId> tokens;  // prompt, then everything that was committed
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;
  std::uint32_t min_tokens = 0;
  SamplingParams sampling;
  bool ignore_end = false;
  EndTokens end_tokens;  // the model's and the request's
  DraftMode mode = DraftMode::automatic;
  std::uint16_t node_budget = 0;
  bool paused = false;  // its client is slow: no plan names it

  // The worker's view, valid while `slot` is set.
  std::optional<SlotId> slot;
  std::uint32_t prefill_end =
      0;  // tokens to prefill: prompt, and what was delivered before a restart
  std::uint32_t prefill_sent = 0;  // of those, in plans so far
  std::uint32_t length = 0;        // committed on the device as of the last result, bonus excluded
  std::uint32_t ahead = 0;         // most that the rounds on the way can commit
  std::uint32_t draws_ahead = 0;   // plans on the way that deliver a token for certain
  StepId last_named = 0;

  // Bookkeeping for its client.
  RequestDraft draft;
  DraftSummary summary;
  Instant submitted{};
  std::optional<Instant> planned;
  std::optional<Instant> first_token;
  Instant last_token{};

  std::uint32_t generated() const {
    return static_cast<std::uint32_t>(tokens.size()) - prompt_tokens;
  }
  bool prefilling() const { return prefill_sent < prefill_end; }
  // Everything it will be asked to draw is on the way already.
  bool draws_covered() const { return generated() + draws_ahead >= max_tokens; }
};

}  // namespace copse
