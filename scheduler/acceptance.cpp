#include "scheduler/acceptance.h"

#include <cmath>

namespace copse {
namespace {

constexpr double kMemory = 50;        // rounds that a mean remembers
constexpr double kGuessWeight = 2;    // rounds that the interpolated guess counts for
constexpr double kGuessPerLog = 0.6;  // accepted tokens per doubling of the nodes, before any round

}  // namespace

void ServerAcceptance::Share::add(double value) {
  rounds = std::min(rounds + 1, kMemory);
  mean += (value - mean) / rounds;
}

ServerAcceptance::ServerAcceptance(int draft_block, int nodes_max)
    : positions_(std::clamp(draft_block - 1, 0, limits::draft_block - 1)) {
  arms_.push_back({DraftMode::none, 0});
  if (positions_ > 0) {
    for (int nodes = 1; nodes < positions_ && nodes <= nodes_max; nodes *= 2) {
      arms_.push_back({DraftMode::chain, nodes});
    }
    if (positions_ <= nodes_max) arms_.push_back({DraftMode::chain, positions_});
    for (int nodes = 4; nodes <= std::min(nodes_max, limits::tree_nodes); nodes *= 2) {
      arms_.push_back({DraftMode::tree, nodes});
    }
  }
  tree_.resize(arms_.size());
  accepted_.resize(arms_.size());
  for (const DraftChoice& arm : arms_) log_nodes_.push_back(std::log2(1.0 + arm.nodes));
  refresh();
}

std::size_t ServerAcceptance::arm_of(DraftChoice choice) const {
  std::size_t best = 0;
  for (std::size_t arm = 1; arm < arms_.size(); ++arm) {
    if (arms_[arm].mode != choice.mode) continue;
    if (best == 0 ||
        std::abs(arms_[arm].nodes - choice.nodes) < std::abs(arms_[best].nodes - choice.nodes)) {
      best = arm;
    }
  }
  return best;
}

double ServerAcceptance::weight(std::size_t arm) const {
  if (arms_[arm].mode == DraftMode::none) return kMemory;
  if (arms_[arm].mode == DraftMode::tree) return tree_[arm].rounds;
  return chain_[static_cast<std::size_t>(arms_[arm].nodes - 1)].rounds;
}

// A longer chain teaches the shorter ones: their positions are its first.
double ServerAcceptance::measured(std::size_t arm) const {
  if (arms_[arm].mode == DraftMode::tree) return tree_[arm].mean;
  double sum = 0;
  for (int d = 0; d < arms_[arm].nodes; ++d) sum += chain_[static_cast<std::size_t>(d)].mean;
  return sum;
}

double ServerAcceptance::interpolated(std::size_t arm) const {
  const double x = log_nodes_[arm];
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;  // nearest measured below (at worst the origin) and above
  bool below = false, above = false;
  for (std::size_t other = 1; other < arms_.size(); ++other) {
    if (other == arm || weight(other) < 1) continue;
    const double xo = log_nodes_[other];
    if (xo <= x && (!below || xo >= x0)) {
      below = true, x0 = xo, y0 = measured(other);
    } else if (xo > x && (!above || xo < x1)) {
      above = true, x1 = xo, y1 = measured(other);
    }
  }
  if (!below && !above) return kGuessPerLog * x;
  if (above) return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  // Beyond the largest: half the average slope so far, since the curve is concave.
  return y0 + 0.5 * (x - x0) * y0 / std::max(x0, 1.0);
}

void ServerAcceptance::refresh() {
  if (!stale_) return;
  stale_ = false;
  for (std::size_t arm = 1; arm < arms_.size(); ++arm) {
    const double rounds = weight(arm);
    const double sum = kGuessWeight * interpolated(arm) + rounds * measured(arm);
    const int most = std::min(positions_, arms_[arm].nodes);
    accepted_[arm] = std::min<double>(most, sum / (kGuessWeight + rounds));
  }
}

void ServerAcceptance::observe(std::size_t arm, int walk_length) {
  if (arm == 0) return;
  const int taken = walk_length - 1;
  const bool chain = arms_[arm].mode == DraftMode::chain;
  const int depth = std::min(positions_, arms_[arm].nodes);
  for (int d = 0; d < depth; ++d) {
    const double reached = taken > d ? 1 : 0;
    positions_reached_[static_cast<std::size_t>(d)].add(reached);
    if (chain) chain_[static_cast<std::size_t>(d)].add(reached);
  }
  if (!chain) tree_[arm].add(taken);
  stale_ = true;
}

double ServerAcceptance::reached(int position) const {
  return positions_reached_[static_cast<std::size_t>(position)].mean;
}

}  // namespace copse
