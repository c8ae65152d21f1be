#include "scheduler/draft_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/random.h"

namespace copse {
namespace {

// A made-up machine and drafter: what a step really costs, and how far a draft really gets.
struct World {
  std::function<double(int rows, bool drafting)> step_us;
  std::function<double(DraftChoice)> accept;  // chance that one more position is accepted
  double noise = 0.05;
  SeededRandom random{1};

  double uniform() { return static_cast<double>(random.next() >> 11) * 0x1p-53; }
  int walk(DraftChoice choice, int block) {
    int accepted = 0;
    const int most = choice.mode == DraftMode::none ? 0 : std::min(block - 1, choice.nodes);
    while (accepted < most && uniform() < accept(choice)) ++accepted;
    return 1 + accepted;
  }
  double cost(int rows, bool drafting) {
    const double spike = uniform() < 0.01 ? 5 : 1;  // the machine does something else now and then
    return step_us(rows, drafting) * spike * (1 + noise * (2 * uniform() - 1));
  }
};

constexpr int kBlock = 8;

std::vector<StepCosts::Row> table_of(const World& world) {
  std::vector<StepCosts::Row> table;
  for (int nodes : {0, 4, 8, 16, 32, 64}) {
    table.push_back({nodes, world.step_us(1 + nodes, nodes > 0)});
  }
  return table;
}

struct Totals {
  double us = 0;
  double tokens = 0;
  std::map<std::pair<int, int>, int> late;  // choices of the last half: (mode, nodes) -> rounds
  double us_per_token() const { return us / tokens; }
};

// `sequences` requests that all draft as the policy says, results known one step late.
Totals run(World& world, DraftPolicy& policy, int sequences, int steps) {
  std::vector<RequestDraft> requests(static_cast<std::size_t>(sequences));
  std::vector<RequestDraft*> views;
  for (RequestDraft& request : requests) views.push_back(&request);
  std::vector<DraftChoice> pending;
  Totals sum;
  for (int step = 0; step < steps; ++step) {
    const auto choices = policy.choose(views, {0, 0, false, 768});
    for (std::size_t i = 0; i < pending.size(); ++i) {
      const int walk = world.walk(pending[i], kBlock);
      sum.tokens += walk;
      policy.observe_round(requests[i], pending[i], walk);
    }
    if (!pending.empty()) {
      int rows = 0;
      bool drafting = false;
      for (const DraftChoice& choice : pending) {
        rows += 1 + choice.nodes;
        drafting |= choice.nodes > 0;
      }
      sum.us += world.step_us(rows, drafting);  // what it costs on average
      policy.observe_step(rows, drafting, world.cost(rows, drafting));
    }
    pending = choices;
    if (step > steps / 2) {
      for (const auto& choice : choices) ++sum.late[{static_cast<int>(choice.mode), choice.nodes}];
    }
  }
  return sum;
}

double share(const Totals& run, DraftMode mode, int least_nodes, int most_nodes) {
  int hits = 0, all = 0;
  for (const auto& [choice, rounds] : run.late) {
    all += rounds;
    if (choice.first == static_cast<int>(mode) && choice.second >= least_nodes &&
        choice.second <= most_nodes) {
      hits += rounds;
    }
  }
  return static_cast<double>(hits) / all;
}

TEST(DraftPolicy, WithoutADrafterEverythingIsNone) {
  DraftPolicy policy(0, {});
  RequestDraft request;
  RequestDraft* view = &request;
  const auto choices = policy.choose({&view, 1}, {0, 0, false, 768});
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0], (DraftChoice{DraftMode::none, 0}));
  EXPECT_EQ(policy.reason(), "none: no drafter is loaded");
}

// Nodes are nearly free and trees get further: it settles on a large tree within a few dozen
// rounds.
TEST(DraftPolicy, ConvergesToALargeTreeWhereNodesAreCheap) {
  World world;
  world.step_us = [](int rows, bool drafting) { return 10000 + 5.0 * rows + (drafting ? 800 : 0); };
  world.accept = [](DraftChoice c) {
    return c.mode == DraftMode::tree ? 0.6 + 0.05 * std::log2(c.nodes) : 0.6;
  };
  DraftPolicy policy(kBlock, table_of(world));
  const Totals early = run(world, policy, 1, 100);
  EXPECT_GE(share(early, DraftMode::tree, 32, 64), 0.8) << policy.reason();
  EXPECT_LT(early.us_per_token(), 10005 / 2.0);
}

// Each node costs as on a mixture of experts: the best tree is small.
TEST(DraftPolicy, ConvergesToASmallDraftWhereNodesAreDear) {
  World world;
  world.step_us = [](int rows, bool drafting) {
    return 8000 + 700.0 * rows + (drafting ? 500 : 0);
  };
  world.accept = [](DraftChoice c) { return c.mode == DraftMode::tree ? 0.62 : 0.6; };
  DraftPolicy policy(kBlock, table_of(world));
  const Totals late = run(world, policy, 1, 400);
  EXPECT_LE(share(late, DraftMode::tree, 16, 64), 0.1) << policy.reason();
  EXPECT_LT(late.us_per_token(), 8700 / 1.3);
}

TEST(DraftPolicy, AUselessDrafterCostsLittle) {
  for (const double draft_us : {500.0, 3000.0, 10000.0, 25000.0}) {
    for (const double node_us : {10.0, 300.0}) {
      World world;
      world.random = SeededRandom(static_cast<std::uint64_t>(draft_us + node_us));
      world.step_us = [=](int rows, bool drafting) {
        return 10000 + node_us * rows + (drafting ? draft_us : 0);
      };
      world.accept = [](DraftChoice) { return 0.01; };
      DraftPolicy policy(kBlock, table_of(world));
      const int steps = 1000;
      const Totals sum = run(world, policy, 1, steps);
      const double plain_us = (steps - 1) * world.step_us(1, false);
      EXPECT_LT(sum.us, 1.03 * plain_us) << draft_us << " " << node_us << " " << policy.reason();
    }
  }
}

// The drafter's quality changes with the traffic: none is not for ever, nor is a tree.
TEST(DraftPolicy, FollowsAChangeInBothDirections) {
  World world;
  double accept = 0.02;
  world.step_us = [](int rows, bool drafting) {
    return 10000 + 20.0 * rows + (drafting ? 900 : 0);
  };
  world.accept = [&](DraftChoice) { return accept; };
  DraftPolicy policy(kBlock, table_of(world));
  EXPECT_GT(share(run(world, policy, 1, 400), DraftMode::none, 0, 0), 0.9);
  accept = 0.75;
  EXPECT_LT(share(run(world, policy, 1, 3000), DraftMode::none, 0, 0), 0.1) << policy.reason();
  accept = 0.0;
  EXPECT_GT(share(run(world, policy, 1, 400), DraftMode::none, 0, 0), 0.9) << policy.reason();
}

// A wrong table from the start is corrected by the measured steps.
TEST(DraftPolicy, MeasuredStepsOverruleAWrongTable) {
  World world;
  world.step_us = [](int rows, bool drafting) {
    return 10000 + 10.0 * rows + (drafting ? 30000 : 0);
  };
  world.accept = [](DraftChoice) { return 0.6; };
  const std::vector<StepCosts::Row> wrong = {{0, 10000}, {8, 10100}, {64, 10500}};
  DraftPolicy policy(kBlock, wrong);
  EXPECT_GT(share(run(world, policy, 1, 400), DraftMode::none, 0, 0), 0.9) << policy.reason();
}

// Under load rows are dear: many sequences draft less than one alone.
TEST(DraftPolicy, DraftsLessUnderLoad) {
  World world;
  world.step_us = [](int rows, bool drafting) {
    return 10000 + 20.0 * std::max(0, rows - 32) * 8 + (drafting ? 900 : 0);
  };
  world.accept = [](DraftChoice c) {
    return c.mode == DraftMode::tree ? 0.5 + 0.05 * std::log2(c.nodes) : 0.5;
  };
  DraftPolicy alone(kBlock, table_of(world));
  const Totals one = run(world, alone, 1, 400);
  DraftPolicy loaded(kBlock, table_of(world));
  const Totals many = run(world, loaded, 16, 400);
  EXPECT_GE(share(one, DraftMode::tree, 16, 64), 0.6) << alone.reason();
  EXPECT_LE(share(many, DraftMode::tree, 16, 64), 0.2) << loaded.reason();
  EXPECT_LT(many.us / many.tokens, 1.02 * 10000 / 16);
}

// One request whose drafts fail does not draft, while its neighbours go on.
TEST(DraftPolicy, ARequestIsJudgedByItsOwnDrafts) {
  World world;
  world.step_us = [](int rows, bool drafting) {
    return 10000 + 200.0 * rows + (drafting ? 500 : 0);
  };
  world.accept = [](DraftChoice) { return 0.7; };
  DraftPolicy policy(kBlock, table_of(world));
  std::vector<RequestDraft> requests(4);
  std::vector<RequestDraft*> views;
  for (RequestDraft& request : requests) views.push_back(&request);
  int bad_drafts = 0, good_drafts = 0;
  for (int step = 0; step < 300; ++step) {
    const auto choices = policy.choose(views, {0, 0, false, 768});
    int rows = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const int walk = i == 0 ? 1 : world.walk(choices[i], kBlock);
      policy.observe_round(requests[i], choices[i], walk);
      rows += 1 + choices[i].nodes;
    }
    policy.observe_step(rows, true, world.cost(rows, true));
    if (step < 100) continue;
    bad_drafts += choices[0].nodes;
    good_drafts += choices[1].nodes;
  }
  EXPECT_LT(bad_drafts * 4, good_drafts);
}

TEST(DraftPolicy, NeverPlansMoreRowsThanTheStepHolds) {
  World world;
  world.step_us = [](int rows, bool drafting) { return 10000 + 1.0 * rows + (drafting ? 100 : 0); };
  world.accept = [](DraftChoice) { return 0.9; };
  DraftPolicy policy(kBlock, table_of(world));
  std::vector<RequestDraft> requests(32);
  std::vector<RequestDraft*> views;
  for (RequestDraft& request : requests) views.push_back(&request);
  for (int step = 0; step < 500; ++step) {
    int rows = 100;
    const auto choices = policy.choose(views, {1, 100, true, 300});
    for (std::size_t i = 0; i < requests.size(); ++i) {
      rows += 1 + choices[i].nodes;
      policy.observe_round(requests[i], choices[i], world.walk(choices[i], kBlock));
    }
    ASSERT_LE(rows, 300);
  }
}

}  // namespace
}  // namespace copse
