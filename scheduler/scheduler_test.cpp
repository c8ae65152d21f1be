#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "base/random.h"
#include "scheduler/testing/oracle_device.h"

namespace copse {
namespace {

Submit request_of(std::uint32_t prompt, std::uint32_t max_tokens, std::uint64_t salt = 0) {
  Submit request;
  for (std::uint32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + (i * 7 + salt * 13) % 500));
  }
  request.max_tokens = max_tokens;
  return request;
}

// A scheduler and a device, one plan ahead, and everything that clients got.
struct Bench {
  OracleModel model;
  Scheduler scheduler;
  std::unique_ptr<OracleDevice> device;
  std::deque<StepResult> results;
  std::map<SequenceId, std::vector<TokenId>> got;
  std::map<SequenceId, Finished> finished;
  std::vector<StepPlan> plans;
  ManualClock clock;
  std::uint32_t epoch = 1;

  explicit Bench(OracleModel m = {}, SchedulerOptions options = {})
      : model(m), scheduler(options), device(std::make_unique<OracleDevice>(m)) {
    EXPECT_TRUE(scheduler.start(epoch, model.ready(epoch), clock.now()).empty());
  }
  void submit(SequenceId id, const Submit& request) {
    const auto refusal = scheduler.submit(id, request, clock.now());
    ASSERT_FALSE(refusal.has_value()) << refusal->message;
  }
  bool plan() {
    auto next = scheduler.next_plan(clock.now());
    if (!next) return false;
    auto result = device->run(*next);
    EXPECT_TRUE(result.ok()) << describe(result.error());
    results.push_back(std::move(*result));
    plans.push_back(std::move(*next));
    return true;
  }
  bool answer() {
    if (results.empty()) return false;
    clock.advance(milliseconds(1));
    auto committed = scheduler.commit(results.front(), clock.now());
    results.pop_front();
    EXPECT_TRUE(committed.ok()) << describe(committed.error());
    for (const Delivery& delivery : committed->deliveries) {
      auto& tokens = got[delivery.sequence];
      EXPECT_EQ(delivery.index, tokens.size());
      tokens.insert(tokens.end(), delivery.tokens.begin(), delivery.tokens.end());
    }
    for (const Finished& end : committed->finished) {
      EXPECT_TRUE(finished.emplace(end.sequence, end).second) << "ended twice";
    }
    const Status integrity = scheduler.check_integrity();
    EXPECT_TRUE(integrity.ok()) << describe(integrity.error());
    return true;
  }
  void restart() {
    results.clear();
    scheduler.reset();
    device = std::make_unique<OracleDevice>(model);
    ++epoch;
    EXPECT_TRUE(scheduler.start(epoch, model.ready(epoch), clock.now()).empty());
  }
  void run_to_end() {
    for (int i = 0; i < 100000; ++i) {
      while (plan()) {
      }
      if (!answer()) break;
    }
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.pages_used(), 0);
  }
  void expect_answer(SequenceId id, const Submit& request) {
    const auto expected = model.answer(request);
    EXPECT_EQ(got[id], expected.tokens) << id;
    ASSERT_TRUE(finished.contains(id)) << id;
    EXPECT_EQ(finished[id].reason, expected.finish) << id;
    EXPECT_EQ(finished[id].generated, expected.tokens.size());
  }
};

TEST(Scheduler, ARequestGetsTheModelsTokensInEveryMode) {
  for (DraftMode mode :
       {DraftMode::none, DraftMode::chain, DraftMode::tree, DraftMode::automatic}) {
    Bench bench;
    Submit request = request_of(100, 300);
    request.draft = mode;
    bench.submit(1, request);
    bench.run_to_end();
    bench.expect_answer(1, request);
  }
}

TEST(Scheduler, TheNextPlanIsMadeBeforeTheResultIsBack) {
  Bench bench;
  bench.submit(1, request_of(10, 50));
  EXPECT_TRUE(bench.plan());
  EXPECT_TRUE(bench.plan());
  EXPECT_FALSE(bench.plan()) << "two are on the way";
  ASSERT_EQ(bench.plans[1].decode.size(), 1u);
  EXPECT_TRUE(bench.answer());
  EXPECT_TRUE(bench.plan());
}

TEST(Scheduler, ManyRequestsShareStepsAndEachGetsItsOwnAnswer) {
  OracleModel model;
  model.pages = 40;
  Bench bench(model);
  std::map<SequenceId, Submit> requests;
  for (SequenceId id = 1; id <= 60; ++id) {
    Submit request = request_of(1 + static_cast<std::uint32_t>(id * 37 % 300),
                                1 + static_cast<std::uint32_t>(id * 11 % 90), id);
    request.draft = static_cast<DraftMode>(id % 4);
    request.node_budget = static_cast<std::uint16_t>(id % 5 == 0 ? 40 : 0);
    request.ignore_end = id % 7 == 0;
    request.min_tokens = id % 3 == 0 ? 5 : 0;
    requests[id] = request;
    bench.submit(id, request);
  }
  bench.run_to_end();
  for (const auto& [id, request] : requests) bench.expect_answer(id, request);
}

TEST(Scheduler, PrefillIsChunkedBesideDecode) {
  SchedulerOptions options;
  options.prefill_chunk = 32;
  Bench bench({}, options);
  bench.submit(1, request_of(10, 200));
  ASSERT_TRUE(bench.plan());
  bench.submit(2, request_of(100, 5, 3));
  bench.run_to_end();
  int mixed = 0;
  for (const StepPlan& plan : bench.plans) {
    std::size_t rows = 0;
    for (const PrefillChunk& chunk : plan.prefill) rows += chunk.tokens.size();
    EXPECT_LE(rows, 32u);
    mixed += !plan.prefill.empty() && !plan.decode.empty() ? 1 : 0;
  }
  EXPECT_GE(mixed, 3);
}

TEST(Scheduler, FirstComeFirstServedEvenWhenALaterOneWouldFit) {
  OracleModel model;
  model.pages = 10;
  Bench bench(model);
  bench.submit(1, request_of(300, 200));  // eight pages
  bench.submit(2, request_of(300, 100));  // seven: waits
  bench.submit(3, request_of(10, 10));    // one: would fit, waits behind
  ASSERT_TRUE(bench.plan());
  EXPECT_EQ(bench.scheduler.running(), 1);
  EXPECT_EQ(bench.scheduler.waiting(), 2);
  bench.run_to_end();
  EXPECT_EQ(bench.finished.size(), 3u);
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithNumbers) {
  OracleModel model;
  model.pages = 8;
  Bench bench(model);
  const auto context = bench.scheduler.submit(1, request_of(1000, 100), Instant{});
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->kind, RefusalKind::too_long);
  EXPECT_NE(context->message.find("1024"), std::string::npos) << context->message;
  const auto pool = bench.scheduler.submit(2, request_of(500, 100), Instant{});
  ASSERT_TRUE(pool.has_value());
  EXPECT_EQ(pool->kind, RefusalKind::too_long);
  EXPECT_NE(pool->message.find("10 cache pages"), std::string::npos) << pool->message;
  EXPECT_TRUE(bench.scheduler.idle());
}

TEST(Scheduler, BadValuesAreRefusedWithTheirField) {
  Bench bench;
  const auto field_of = [&](const Submit& request) {
    const auto refusal = bench.scheduler.submit(1, request, Instant{});
    return refusal ? refusal->at : std::string("accepted");
  };
  EXPECT_EQ(field_of(Submit{}), "prompt");
  Submit request = request_of(3, 5);
  request.prompt[1] = 512;
  EXPECT_EQ(field_of(request), "prompt");
  EXPECT_EQ(field_of(request_of(3, 0)), "max_tokens");
  request = request_of(3, 5);
  request.sampling.temperature = -1;
  EXPECT_EQ(field_of(request), "sampling");
  request = request_of(3, 5);
  request.node_budget = 513;
  EXPECT_EQ(field_of(request), "node_budget");
  request = request_of(3, 5);
  for (TokenId token = 1; token <= 16; ++token) request.stop_tokens.push_back(token);
  EXPECT_EQ(field_of(request), "stop_tokens");
}

TEST(Scheduler, AFullQueueSaysWhenToComeBack) {
  Bench bench;
  for (SequenceId id = 1; id <= limits::queued_requests; ++id) bench.submit(id, request_of(4, 4));
  const auto refusal = bench.scheduler.submit(999, request_of(4, 4), Instant{});
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, RefusalKind::queue_full);
  EXPECT_GT(refusal->retry_after_s, 0u);
}

TEST(Scheduler, ACancelledSequenceIsNamedByNoLaterPlan) {
  Bench bench;
  bench.submit(1, request_of(10, 200));
  bench.submit(2, request_of(10, 40, 5));
  for (int i = 0; i < 4; ++i) {
    bench.plan();
    bench.plan();
    bench.answer();
  }
  const auto end = bench.scheduler.cancel(1, FinishReason::abort, bench.clock.now());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, FinishReason::abort);
  EXPECT_FALSE(bench.scheduler.cancel(1, FinishReason::abort, bench.clock.now()).has_value());
  const std::size_t before = bench.got[1].size();
  const std::size_t plans = bench.plans.size();
  bench.run_to_end();
  EXPECT_EQ(bench.got[1].size(), before);
  for (std::size_t i = plans; i < bench.plans.size(); ++i) {
    EXPECT_LE(bench.plans[i].decode.size(), 1u);
  }
  bench.expect_answer(2, request_of(10, 40, 5));
}

TEST(Scheduler, APausedSequenceKeepsItsPlaceAndGoesOnLater) {
  Bench bench;
  const Submit request = request_of(10, 60);
  bench.submit(1, request);
  bench.plan();
  bench.answer();
  bench.scheduler.pause(1, true);
  EXPECT_FALSE(bench.plan());
  EXPECT_EQ(bench.scheduler.running(), 1);
  bench.scheduler.pause(1, false);
  bench.run_to_end();
  bench.expect_answer(1, request);
}

TEST(Scheduler, AfterARestartStreamsGoOnAtTheNextIndex) {
  for (int restart_after = 1; restart_after < 12; ++restart_after) {
    Bench bench;
    std::map<SequenceId, Submit> requests;
    for (SequenceId id = 1; id <= 12; ++id) {
      requests[id] = request_of(static_cast<std::uint32_t>(10 * id), 40, id);
      requests[id].min_tokens = 8;
      requests[id].sampling.temperature = id % 2 == 0 ? 1.0f : 0.0f;
      requests[id].sampling.seed = id;
      bench.submit(id, requests[id]);
    }
    for (int i = 0; i < restart_after; ++i) {
      bench.plan();
      bench.plan();
      bench.answer();
    }
    bench.restart();
    EXPECT_EQ(bench.scheduler.running(), 0);
    bench.run_to_end();
    for (const auto& [id, request] : requests) bench.expect_answer(id, request);
  }
}

TEST(Scheduler, RestartedSequencesAreFirstInLine) {
  OracleModel model;
  model.slots = 2;
  Bench bench(model);
  for (SequenceId id = 1; id <= 4; ++id) bench.submit(id, request_of(10, 30, id));
  bench.plan();
  bench.answer();
  bench.restart();
  ASSERT_TRUE(bench.plan());
  const StepPlan& plan = bench.plans.back();
  ASSERT_EQ(plan.opened.size(), 2u);
  EXPECT_EQ(plan.opened[0].drawn_tokens, 1u);
  EXPECT_EQ(plan.opened[0].remaining_tokens, 29u);
  EXPECT_EQ(plan.prefill[0].tokens.size(), 11u);
}

TEST(Scheduler, AWrongResultIsRefusedWhole) {
  Bench bench;
  bench.submit(1, request_of(10, 50));
  bench.plan();
  const StepResult good = bench.results.front();
  const auto refused = [&](auto spoil) {
    StepResult bad = good;
    spoil(bad);
    return !bench.scheduler.commit(bad, Instant{}).ok();
  };
  EXPECT_TRUE(refused([](StepResult& r) { ++r.step; }));
  EXPECT_TRUE(refused([](StepResult& r) { ++r.epoch; }));
  EXPECT_TRUE(refused([](StepResult& r) { r.slots.clear(); }));
  EXPECT_TRUE(refused([](StepResult& r) { ++r.slots[0].generation; }));
  EXPECT_TRUE(refused([](StepResult& r) { ++r.slots[0].length; }));
  EXPECT_TRUE(refused([](StepResult& r) { r.slots[0].tokens.clear(); }));
  EXPECT_TRUE(refused([](StepResult& r) { r.slots[0].tokens[0] = 512; }));
  EXPECT_TRUE(refused([](StepResult& r) { r.slots[0].tokens.push_back(1); }));
  EXPECT_TRUE(bench.scheduler.commit(good, Instant{}).ok());
}

TEST(Scheduler, ASummaryCountsDeliveredTokensAlone) {
  OracleModel model;
  model.accept_percent = 100;  // every walk is a whole block of eight
  Bench bench(model);
  Submit request = request_of(10, 12);
  request.ignore_end = true;
  request.draft = DraftMode::chain;
  bench.submit(1, request);
  bench.run_to_end();
  const DraftSummary& draft = bench.finished[1].draft;
  // One token from prefill, a walk of eight, and of the next walk three draft tokens are delivered.
  EXPECT_EQ(draft.rounds, 2u);
  EXPECT_EQ(draft.round_tokens, 11u);
  ASSERT_EQ(draft.walk_lengths.size(), 2u);
  EXPECT_EQ(draft.walk_lengths[0], 8);
  EXPECT_EQ(draft.walk_lengths[1], 8);
  ASSERT_EQ(draft.accepted_by_position.size(), 7u);
  EXPECT_EQ(draft.accepted_by_position[2], 2u);
  EXPECT_EQ(draft.accepted_by_position[3], 1u);
  EXPECT_EQ(bench.scheduler.totals().generated_tokens, 12u);
  EXPECT_EQ(bench.scheduler.totals().accepted_tokens, 10u);
}

// Random operations: submissions, cancellations, pauses, restarts. What finishes by itself is
// right.
TEST(Scheduler, RandomHistoriesLoseAndRepeatNothing) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SeededRandom random(seed);
    OracleModel model;
    model.seed = seed;
    model.pages = static_cast<std::uint32_t>(18 + random.below(30));
    model.slots = static_cast<std::uint32_t>(1 + random.below(6));
    model.draft_block = static_cast<std::uint32_t>(random.below(3) == 0 ? 0 : 2 + random.below(12));
    model.accept_percent = static_cast<std::uint32_t>(random.below(101));
    model.vocabulary = random.below(2) == 0 ? 512 : 600;
    SchedulerOptions options;
    options.prefill_chunk = static_cast<int>(1 + random.below(200));
    Bench bench(model, options);
    std::map<SequenceId, Submit> requests;
    std::map<SequenceId, bool> cancelled;
    SequenceId next = 1;
    for (int i = 0; i < 400; ++i) {
      const auto pick = 1 + random.below(next);
      switch (random.below(12)) {
        case 0: {
          Submit request = request_of(static_cast<std::uint32_t>(1 + random.below(200)),
                                      static_cast<std::uint32_t>(1 + random.below(80)), next);
          request.sampling.temperature = random.below(2) == 0 ? 0.0f : 0.7f;
          if (bench.scheduler.submit(next, request, bench.clock.now())) break;
          requests[next++] = request;
          break;
        }
        case 1:
          if (bench.scheduler.cancel(pick, FinishReason::abort, bench.clock.now())) {
            cancelled[pick] = true;
          }
          break;
        case 2:
          bench.scheduler.pause(pick, true);
          break;
        case 3:
        case 4:
          bench.scheduler.pause(pick, false);
          break;
        case 5:
          if (random.below(10) == 0) bench.restart();
          break;
        case 6:
        case 7:
        case 8:
          bench.plan();
          break;
        default:
          bench.answer();
      }
    }
    for (SequenceId id = 1; id < next; ++id) bench.scheduler.pause(id, false);
    bench.run_to_end();
    for (const auto& [id, request] : requests) {
      if (!cancelled[id]) bench.expect_answer(id, request);
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace copse
