#pragma once
// Step 3: how far drafts get. Server-wide, per kind of draft ("arm"): the decayed share of rounds
// whose walk reached each draft position. Per request: how its drafts do against the server's
// average.
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/limits.h"
#include "transport/messages/common.h"

namespace copse {

// One way to draft: mode and draft nodes besides the root.
struct DraftChoice {
  DraftMode mode = DraftMode::none;
  int nodes = 0;
  bool operator==(const DraftChoice&) const = default;
};

// A request's drafts against the server's, over about its last thirty rounds.
class RequestAcceptance {
 public:
  // Expected draft tokens accepted, as a multiple of the server-wide expectation.
  double factor() const { return std::min(3.0, (seen_ + kPrior) / (expected_ + kPrior)); }
  void observe(double accepted, double server_expects) {
    decay(kDecay);
    seen_ += accepted;
    expected_ += server_expects;
  }
  // A round without a draft: the memory fades, so that a request is tried again some day.
  void observe_plain() { decay(kFade); }

 private:
  static constexpr double kPrior = 4;  // tokens: one good round does not make a factor
  static constexpr double kDecay = 0.97;
  static constexpr double kFade = 0.997;
  void decay(double by) {
    seen_ *= by;
    expected_ *= by;
  }
  double seen_ = 0;
  double expected_ = 0;
};

// Server-wide, for a fixed list of arms, arm 0 being none.
class ServerAcceptance {
 public:
  // Chains and trees up to what the drafter's block and `nodes_max` allow; none alone without a
  // drafter (draft_block < 2).
  ServerAcceptance(int draft_block, int nodes_max);

  const std::vector<DraftChoice>& arms() const { return arms_; }
  // The arm that an explicit choice teaches: the same mode, the nearest size.
  std::size_t arm_of(DraftChoice choice) const;

  // Expected accepted draft tokens of a round (bonus not counted); arms that were not measured are
  // interpolated over log2(1 + nodes), with a guess before anything was measured.
  double accepted(std::size_t arm) const { return accepted_[arm]; }
  // Rounds behind that figure, after decay.
  double rounds(std::size_t arm) const { return weight(arm); }
  // Drafted rounds of any arm that were observed, as far as they are remembered.
  double drafted() const { return positions_reached_[0].rounds; }
  // walk_length counts the root, untruncated. accepted() follows at the next refresh: once a step.
  void observe(std::size_t arm, int walk_length);
  void refresh();
  // Share of drafted rounds whose walk took the draft token at `position` (from 0).
  double reached(int position) const;

 private:
  struct Share {
    double mean = 0;
    double rounds = 0;
    void add(double value);
  };
  double weight(std::size_t arm) const;
  double measured(std::size_t arm) const;
  double interpolated(std::size_t arm) const;

  int positions_;
  bool stale_ = true;
  std::vector<DraftChoice> arms_;
  std::vector<Share> tree_;                         // per arm: accepted draft tokens of a round
  std::array<Share, limits::draft_block> chain_{};  // per position: reached by chains
  std::array<Share, limits::draft_block> positions_reached_{};  // by any draft
  std::vector<double> log_nodes_;                               // per arm: log2(1 + nodes)
  std::vector<double> accepted_;
};

}  // namespace copse
