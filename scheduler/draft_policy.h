#pragma once
// Step 3: how the sequences of a step draft, if the server may choose: none, chain or tree of B,
// whatever is expected to deliver most tokens per microsecond over the whole step
// (docs/decisions/0004).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scheduler/acceptance.h"
#include "scheduler/step_costs.h"

namespace copse {

// What the policy keeps of one request; it lives as long as the request.
struct RequestDraft {
  RequestAcceptance acceptance;
  int arm = -1;  // of its last round; -1 before the first
};

// What the step holds besides the sequences that are chosen for.
struct StepShare {
  int sequences = 0;      // with a mode of their own
  int rows = 0;           // of those, draft nodes included
  bool drafting = false;  // one of them drafts
  int rows_max = 0;       // for the whole step
};

class DraftPolicy {
 public:
  DraftPolicy() : DraftPolicy(0, {}) {}
  // `table` as measured by the workers; its largest row bounds the trees that are tried. Without a
  // drafter (draft_block < 2) every choice is none.
  DraftPolicy(int draft_block, std::span<const StepCosts::Row> table);

  // One choice per request, in order. Counts as one step.
  std::vector<DraftChoice> choose(std::span<RequestDraft* const> requests, const StepShare& others);

  // What a round did; explicit modes teach as well. walk_length untruncated, the root counted.
  void observe_round(RequestDraft& request, DraftChoice choice, int walk_length);
  // One step without prefill: rows of all its sequences, draft nodes included.
  void observe_step(int rows, bool drafting, double total_us);

  // One sentence: what was chosen last, and why.
  std::string reason() const;

 private:
  using Arms = std::vector<std::size_t>;  // one per request
  struct Outcome {
    double tokens = 0;
    int rows = 0;
    bool drafting = false;
    double rate = 0;  // tokens per microsecond
  };
  struct Reason {
    DraftChoice choice;
    double tokens = 1;  // expected of one request's round
    double step_us = 0;
    double plain_us = 0;
    double gain = 1;  // rate over the rate of none
    bool probe = false;
    bool drafter = false;
  };
  double walk(const RequestDraft& request, std::size_t arm) const;
  Outcome outcome(std::span<RequestDraft* const> requests, const Arms& arms,
                  const StepShare& others) const;
  double rate(double tokens, int rows, bool drafting, const StepShare& others) const;
  Arms best_uniform(std::span<RequestDraft* const> requests, const StepShare& others) const;
  void improve_each(std::span<RequestDraft* const> requests, const StepShare& others,
                    Arms& arms) const;
  Arms previous(std::span<RequestDraft* const> requests, const Arms& fallback) const;
  void maybe_probe(std::span<RequestDraft* const> requests, const StepShare& others, Arms& arms,
                   double plain_rate);
  struct Hope {
    std::size_t arm = 0;
    double rate = 0;
  };
  Hope probe_arm(std::span<RequestDraft* const> requests, const StepShare& others, const Arms& arms,
                 std::size_t who);
  bool learn(std::span<RequestDraft* const> requests, const StepShare& others, Arms& arms,
             double plain_rate);
  void explain(std::span<RequestDraft* const> requests, const StepShare& others, const Arms& arms,
               double plain_rate);

  ServerAcceptance server_;
  StepCosts costs_;
  // Probing: `probe_left_` rounds of `probe_` for one request, then none for `probe_interval_`
  // steps.
  std::size_t probe_ = 0;
  int probe_left_ = 0;
  std::uint32_t since_probe_ = 0;
  std::uint32_t probe_interval_;
  std::uint64_t probes_ = 0;
  std::size_t settled_arm_ = 0;  // of the first request when the last probe began
  Reason reason_;
};

}  // namespace copse
