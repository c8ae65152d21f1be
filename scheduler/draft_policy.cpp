#include "scheduler/draft_policy.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace copse {
namespace {

constexpr double kBeatsNone = 1.03;     // drafting at all must promise at least this much
constexpr double kBeatsCurrent = 1.02;  // and a change of arms this much: estimates are noisy
constexpr double kLearnRounds = 6;      // drafted rounds before a draft is given up for bad luck
constexpr int kProbeRounds = 2;
constexpr std::uint32_t kProbeSteps = 48;       // between probes while they find something
constexpr std::uint32_t kProbeStepsMax = 4096;  // backed off
constexpr double kProbeLoss = 0.008;            // share of the time that probes may cost
constexpr double kDoubtPlain = 1.3;             // below this gain, plain steps are probed as well
constexpr int kNodesWithoutTable = 64;

int largest_tree(std::span<const StepCosts::Row> table) {
  int nodes = 0;
  for (const StepCosts::Row& row : table) nodes = std::max(nodes, row.nodes);
  return nodes > 0 ? nodes : kNodesWithoutTable;
}

const char* mode_name(DraftMode mode) {
  switch (mode) {
    case DraftMode::none:
      return "none";
    case DraftMode::chain:
      return "chain";
    case DraftMode::tree:
      return "tree";
    case DraftMode::automatic:
      return "auto";
  }
  return "none";
}

}  // namespace

DraftPolicy::DraftPolicy(int draft_block, std::span<const StepCosts::Row> table)
    : server_(draft_block, largest_tree(table)), costs_(table), probe_interval_(kProbeSteps) {
  reason_.drafter = server_.arms().size() > 1;
}

double DraftPolicy::walk(const RequestDraft& request, std::size_t arm) const {
  if (arm == 0) return 1;
  const double most = server_.arms()[arm].nodes;
  return 1 + std::min(most, request.acceptance.factor() * server_.accepted(arm));
}

double DraftPolicy::rate(double tokens, int rows, bool drafting, const StepShare& others) const {
  if (rows > others.rows_max) return 0;
  return tokens / costs_.step_us(rows, drafting);
}

DraftPolicy::Outcome DraftPolicy::outcome(std::span<RequestDraft* const> requests, const Arms& arms,
                                          const StepShare& others) const {
  Outcome sum{static_cast<double>(others.sequences), others.rows, others.drafting, 0};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    sum.tokens += walk(*requests[i], arms[i]);
    sum.rows += 1 + server_.arms()[arms[i]].nodes;
    sum.drafting |= arms[i] != 0;
  }
  sum.rate = rate(sum.tokens, sum.rows, sum.drafting, others);
  return sum;
}

DraftPolicy::Arms DraftPolicy::best_uniform(std::span<RequestDraft* const> requests,
                                            const StepShare& others) const {
  Arms best(requests.size(), 0);
  double best_rate = 0;
  for (std::size_t arm = 0; arm < server_.arms().size(); ++arm) {
    const Arms arms(requests.size(), arm);
    const double rate = outcome(requests, arms, others).rate;
    if (rate > best_rate) best_rate = rate, best = arms;
  }
  return best;
}

// One pass of coordinate ascent: each request in turn takes the arm that serves the whole step
// best.
void DraftPolicy::improve_each(std::span<RequestDraft* const> requests, const StepShare& others,
                               Arms& arms) const {
  if (requests.size() < 2) return;
  Outcome now = outcome(requests, arms, others);
  int drafting =
      static_cast<int>(std::count_if(arms.begin(), arms.end(), [](auto a) { return a; }));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double tokens = now.tokens - walk(*requests[i], arms[i]);
    const int rows = now.rows - server_.arms()[arms[i]].nodes;
    const int rest_drafting = drafting - (arms[i] != 0 ? 1 : 0);
    for (std::size_t arm = 0; arm < server_.arms().size(); ++arm) {
      const double with = tokens + walk(*requests[i], arm);
      const int with_rows = rows + server_.arms()[arm].nodes;
      const bool drafts = others.drafting || rest_drafting > 0 || arm != 0;
      const double with_rate = rate(with, with_rows, drafts, others);
      if (with_rate <= now.rate) continue;
      now = {with, with_rows, drafts, with_rate};
      arms[i] = arm;
    }
    drafting = rest_drafting + (arms[i] != 0 ? 1 : 0);
  }
}

DraftPolicy::Arms DraftPolicy::previous(std::span<RequestDraft* const> requests,
                                        const Arms& fallback) const {
  Arms arms = fallback;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i]->arm >= 0) arms[i] = static_cast<std::size_t>(requests[i]->arm);
  }
  return arms;
}

std::vector<DraftChoice> DraftPolicy::choose(std::span<RequestDraft* const> requests,
                                             const StepShare& others) {
  if (requests.empty()) return {};
  server_.refresh();
  const Arms plain(requests.size(), 0);
  const double plain_rate = outcome(requests, plain, others).rate;
  Arms arms = plain;
  if (server_.arms().size() > 1) {
    arms = best_uniform(requests, others);
    improve_each(requests, others, arms);
    const Arms before = previous(requests, arms);
    if (outcome(requests, arms, others).rate <
        kBeatsCurrent * outcome(requests, before, others).rate) {
      arms = before;
    }
    if (outcome(requests, arms, others).rate < kBeatsNone * plain_rate) arms = plain;
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i]->arm = static_cast<int>(arms[i]);
    if (!learn(requests, others, arms, plain_rate)) {
      maybe_probe(requests, others, arms, plain_rate);
    }
  }
  explain(requests, others, arms, plain_rate);
  std::vector<DraftChoice> choices;
  choices.reserve(arms.size());
  for (std::size_t arm : arms) choices.push_back(server_.arms()[arm]);
  return choices;
}

// At the start nothing is known but guesses: a few rounds without luck must not end drafting for
// the next probe's long wait. While an arm could still pay, the first sequence goes on with it.
bool DraftPolicy::learn(std::span<RequestDraft* const> requests, const StepShare& others,
                        Arms& arms, double plain_rate) {
  const bool drafts = std::any_of(arms.begin(), arms.end(), [](auto arm) { return arm != 0; });
  if (drafts || server_.drafted() >= kLearnRounds) return false;
  const Hope hope = probe_arm(requests, others, arms, 0);
  if (hope.rate < plain_rate) return false;
  arms[0] = hope.arm;
  reason_.probe = true;
  return true;
}

// The arm that would be best if it were as good as its uncertainty allows; the chosen one if none
// is.
DraftPolicy::Hope DraftPolicy::probe_arm(std::span<RequestDraft* const> requests,
                                         const StepShare& others, const Arms& arms,
                                         std::size_t who) {
  const Outcome now = outcome(requests, arms, others);
  const double tokens = now.tokens - walk(*requests[who], arms[who]);
  const int rows = now.rows - server_.arms()[arms[who]].nodes;
  // While nothing drafts, the best hope is tried even if it is small: traffic may have changed.
  double best_rate = now.drafting ? now.rate : 0;
  std::size_t best = arms[who];
  for (std::size_t arm = 1; arm < server_.arms().size(); ++arm) {
    if (arm == arms[who]) continue;
    const double doubt = 1 / std::sqrt(server_.rounds(arm) + 1);
    const double accepted = walk(*requests[who], arm) - 1;
    const double hope =
        std::min<double>(server_.arms()[arm].nodes, accepted * (1 + 0.6 * doubt) + 0.3 * doubt);
    const double hope_rate =
        rate(tokens + 1 + hope, rows + server_.arms()[arm].nodes, true, others);
    if (hope_rate > best_rate) best_rate = hope_rate, best = arm;
  }
  return {best, best_rate};
}

void DraftPolicy::maybe_probe(std::span<RequestDraft* const> requests, const StepShare& others,
                              Arms& arms, double plain_rate) {
  reason_.probe = false;
  if (probe_left_ == 0) {
    if (++since_probe_ < probe_interval_) return;
    since_probe_ = 0;
    const std::size_t who = probes_++ % requests.size();
    const Outcome now = outcome(requests, arms, others);
    const bool plain_turn = now.drafting && now.rate < kDoubtPlain * plain_rate && probes_ % 2 == 0;
    probe_ = plain_turn ? 0 : probe_arm(requests, others, arms, who).arm;
    if (probe_ == arms[who]) return;
    Arms tried = arms;
    tried[who] = probe_;
    // Nothing changed since the last probe: the next comes later. And none may cost more than its
    // share, whatever it finds.
    probe_interval_ = arms[who] == settled_arm_ ? probe_interval_ * 2 : kProbeSteps;
    settled_arm_ = arms[who];
    const double loss = std::max(0.0, 1 - outcome(requests, tried, others).rate / now.rate);
    const auto affordable = static_cast<std::uint32_t>(kProbeRounds * loss / kProbeLoss);
    probe_interval_ = std::min(std::max(probe_interval_, affordable), kProbeStepsMax);
    probe_left_ = kProbeRounds;
  }
  --probe_left_;
  const std::size_t who = (probes_ - 1) % requests.size();
  Arms tried = arms;
  tried[who] = probe_;
  if (probe_ == 0) tried.assign(arms.size(), 0);
  if (outcome(requests, tried, others).rate <= 0) return;  // it does not fit this step
  arms = tried;
  reason_.probe = true;
}

void DraftPolicy::observe_round(RequestDraft& request, DraftChoice choice, int walk_length) {
  if (choice.mode == DraftMode::none || choice.nodes == 0 || walk_length < 1) {
    request.acceptance.observe_plain();
    return;
  }
  const std::size_t arm = server_.arm_of(choice);
  if (arm == 0) return;
  const double expected = server_.accepted(arm);
  server_.observe(arm, walk_length);
  request.acceptance.observe(walk_length - 1, expected);
}

void DraftPolicy::observe_step(int rows, bool drafting, double total_us) {
  costs_.observe(rows, drafting, total_us);
}

void DraftPolicy::explain(std::span<RequestDraft* const> requests, const StepShare& others,
                          const Arms& arms, double plain_rate) {
  const Outcome now = outcome(requests, arms, others);
  reason_.choice = server_.arms()[arms[0]];
  reason_.tokens = walk(*requests[0], arms[0]);
  reason_.step_us = costs_.step_us(now.rows, now.drafting);
  const int plain_rows = others.rows + static_cast<int>(requests.size());
  reason_.plain_us = costs_.step_us(plain_rows, others.drafting);
  reason_.gain = plain_rate > 0 ? now.rate / plain_rate : 1;
}

std::string DraftPolicy::reason() const {
  if (!reason_.drafter) return "none: no drafter is loaded";
  char text[256];
  const char* probe = reason_.probe ? " (a probe)" : "";
  if (reason_.choice.mode == DraftMode::none) {
    std::snprintf(
        text, sizeof text,
        "none%s: no draft promises 3%% more tokens per second than plain steps of %.0f us; "
        "the first draft position is accepted %.0f%% of the time",
        probe, reason_.plain_us, 100 * server_.reached(0));
  } else {
    std::snprintf(text, sizeof text,
                  "%s of %d%s: %.2f tokens expected a round in %.0f us, against 1 in %.0f us, "
                  "%.2fx; the first draft position is accepted %.0f%% of the time",
                  mode_name(reason_.choice.mode), reason_.choice.nodes, probe, reason_.tokens,
                  reason_.step_us, reason_.plain_us, reason_.gain, 100 * server_.reached(0));
  }
  return text;
}

}  // namespace copse
