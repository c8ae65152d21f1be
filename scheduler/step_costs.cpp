#include "scheduler/step_costs.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace copse {
namespace {

constexpr double kFollow = 0.15;     // of an error, per observation
constexpr double kSpikeBound = 1.5;  // one step that stalled must not move the table far
constexpr std::uint32_t kSettled =
    16;  // observations after which a change is drift, not correction
constexpr double kGuessUs = 10000;

// Linear between the table's rows, beyond its ends along the nearest pair.
double table_us(std::span<const StepCosts::Row> table, double nodes) {
  if (table.size() == 1) return table[0].step_us;
  std::size_t upper = 1;
  while (upper + 1 < table.size() && table[upper].nodes < nodes) ++upper;
  const StepCosts::Row& a = table[upper - 1];
  const StepCosts::Row& b = table[upper];
  const double slope = (b.step_us - a.step_us) / std::max(1, b.nodes - a.nodes);
  return std::max(a.step_us + slope * (nodes - a.nodes), 1.0);
}

}  // namespace

StepCosts::StepCosts(std::span<const Row> table) {
  std::vector<Row> drafts;
  double plain_us = 0;
  for (const Row& row : table) {
    if (!(row.step_us > 0) || !std::isfinite(row.step_us)) continue;
    if (row.nodes == 0) plain_us = row.step_us;
    if (row.nodes > 0) drafts.push_back(row);
  }
  if (plain_us <= 0) plain_us = drafts.empty() ? kGuessUs : drafts.front().step_us;
  for (std::size_t knot = 0; knot < kKnots.size(); ++knot) {
    const double nodes = kKnots[knot] - 1;
    curves_[0].us[knot] = curves_[1].us[knot] = plain_us;
    if (drafts.empty()) continue;
    // Rows cost alike whether sequences or nodes bring them; the drafter's pass is the constant.
    const double drafted = table_us(drafts, nodes);
    curves_[1].us[knot] = drafted;
    curves_[0].us[knot] = plain_us + std::max(0.0, drafted - table_us(drafts, 0));
  }
  for (Curve& curve : curves_) {
    for (std::size_t knot = 1; knot < kKnots.size(); ++knot) {
      curve.us[knot] = std::max(curve.us[knot], curve.us[knot - 1]);
    }
  }
}

StepCosts::Place StepCosts::place(int rows) {
  rows = std::clamp(rows, kKnots.front(), kKnots.back());
  std::size_t knot = 0;
  while (knot + 2 < kKnots.size() && kKnots[knot + 1] <= rows) ++knot;
  return {knot, static_cast<double>(rows - kKnots[knot]) / (kKnots[knot + 1] - kKnots[knot])};
}

double StepCosts::read(const Curve& curve, Place at) {
  return curve.us[at.knot] * (1 - at.fraction) + curve.us[at.knot + 1] * at.fraction;
}

double StepCosts::step_us(int rows, bool drafting) const {
  return read(curves_[drafting ? 1 : 0], place(rows));
}

void StepCosts::observe(int rows, bool drafting, double total_us) {
  if (!(total_us > 0)) return;
  Curve& curve = curves_[drafting ? 1 : 0];
  const Place at = place(rows);
  const double expected = read(curve, at);
  const std::size_t nearest = at.fraction < 0.5 ? at.knot : at.knot + 1;
  // A first observation replaces the guess; later ones correct it, a stall at most by its bound.
  const std::uint32_t seen = curve.seen[nearest];
  const double error = std::clamp(total_us / expected, 1 / kSpikeBound, kSpikeBound) - 1;
  const double follow = std::max(kFollow, 1.0 / (seen + 2));
  const bool settled = seen >= kSettled;
  ++curve.seen[nearest];
  curve.us[at.knot] *= 1 + follow * error * (1 - at.fraction);
  curve.us[at.knot + 1] *= 1 + follow * error * at.fraction;
  if (settled) {
    // Contexts grow and machines slow down: what moves a settled estimate moves the others too, or
    // an arm that is not chosen any more would be judged by the times of long ago.
    const double ratio = 1 + follow * error;
    for (Curve& each : curves_) {
      for (std::size_t knot = 0; knot < kKnots.size(); ++knot) {
        if (&each == &curve && (knot == at.knot || knot == at.knot + 1)) continue;
        each.us[knot] *= ratio;
      }
    }
  }
  keep_monotone(curve, nearest);
}

// More rows never cost less: what was just measured rules over older neighbours.
void StepCosts::keep_monotone(Curve& curve, std::size_t around) {
  for (std::size_t knot = around; knot-- > 0;) {
    curve.us[knot] = std::min(curve.us[knot], curve.us[knot + 1]);
  }
  for (std::size_t knot = around + 1; knot < kKnots.size(); ++knot) {
    curve.us[knot] = std::max(curve.us[knot], curve.us[knot - 1]);
  }
}

}  // namespace copse
