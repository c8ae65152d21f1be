#include "worker/round.h"

#include <gtest/gtest.h>

#include "worker/round_for_test.h"

namespace copse {
namespace {

using testing::Generated;
using testing::local_engine;
using testing::Request;
using testing::TestEngine;

const std::vector<TokenId> kPrompt = {0, 659, 1003, 206, 659, 3376, 339, 834, 356, 1932, 598, 864};

Request request(DraftMode mode, int budget, float temperature = 0, int max_tokens = 40) {
  Request request;
  request.prompt = kPrompt;
  request.max_tokens = max_tokens;
  request.mode = mode;
  request.budget = budget;
  request.sampling.temperature = temperature;
  request.sampling.seed = 7;
  return request;
}

TEST(Round, EveryModeDrawsTheSameTokensAtAnyTemperature) {
  for (const float temperature : {0.0f, 0.8f, 1.2f}) {
    const Generated plain = local_engine().generate(request(DraftMode::none, 0, temperature, 64));
    EXPECT_EQ(plain.tokens.size(), 64u);
    for (const int budget : {1, 4, 8, 15}) {
      EXPECT_EQ(local_engine().generate(request(DraftMode::chain, budget, temperature, 64)).tokens,
                plain.tokens);
    }
    for (const int budget : {1, 4, 16, 33, 64, 200}) {
      EXPECT_EQ(local_engine().generate(request(DraftMode::tree, budget, temperature, 64)).tokens,
                plain.tokens);
    }
  }
}

TEST(Round, EveryModeDrawsTheSameTokensUnderFilters) {
  for (const auto& [top_k, top_p, min_p] :
       {std::tuple{20, 1.0f, 0.0f}, {0, 0.9f, 0.0f}, {0, 1.0f, 0.1f}, {50, 0.95f, 0.02f}}) {
    Request plain = request(DraftMode::none, 0, 1.0f);
    plain.sampling.top_k = top_k;
    plain.sampling.top_p = top_p;
    plain.sampling.min_p = min_p;
    Request tree = plain;
    tree.mode = DraftMode::tree;
    tree.budget = 24;
    EXPECT_EQ(local_engine().generate(plain).tokens, local_engine().generate(tree).tokens);
  }
  Request one = request(DraftMode::tree, 16, 1.0f);
  one.sampling.top_k = 1;
  EXPECT_EQ(local_engine().generate(one).tokens,
            local_engine().generate(request(DraftMode::none, 0)).tokens);
}

TEST(Round, ChunksOfThePromptChangeNothing) {
  Request whole = request(DraftMode::tree, 16, 0.8f);
  for (TokenId token = 300; token < 450; ++token) whole.prompt.push_back(token);
  const Generated expected = local_engine().generate(whole);
  for (const int chunk : {1, 7, 64, 100}) {
    Request chunked = whole;
    chunked.chunk = chunk;
    EXPECT_EQ(local_engine().generate(chunked), expected) << chunk;
  }
}

TEST(Round, ABatchOfMixedModesGivesWhatEachGivesAlone) {
  std::vector<Request> requests = {request(DraftMode::none, 0), request(DraftMode::chain, 6, 0.8f),
                                   request(DraftMode::tree, 16), request(DraftMode::tree, 40, 0.8f),
                                   request(DraftMode::none, 0, 1.1f)};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.resize(4 + 2 * i % kPrompt.size());
    requests[i].sampling.seed = i;
    requests[i].max_tokens = 20 + 7 * static_cast<int>(i);
  }
  std::vector<Generated> alone;
  for (const Request& each : requests) alone.push_back(local_engine().generate(each, 3));
  std::vector<TestEngine::Running> running;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    running.push_back(local_engine().begin(requests[i], static_cast<int>(i)));
  }
  const auto unfinished = [&] {
    return std::ranges::any_of(
        running, [](const auto& each) { return each.out.finish == FinishReason::none; });
  };
  while (unfinished()) local_engine().step(running);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(running[i].out, alone[i]) << "sequence " << i;
    local_engine().end(running[i]);
  }
}

TEST(Round, AnEndTokenInsideAnAcceptedRunEndsTheOutputThere) {
  const Generated plain = local_engine().generate(request(DraftMode::none, 0, 0, 96));
  const Generated tree = local_engine().generate(request(DraftMode::tree, 32, 0, 96));
  // A token that tree decoding emits inside a run (not as its bonus), for the first time.
  std::size_t at = 1;
  TokenId end = -1;
  std::size_t length = 0;
  for (const int walk : tree.walks) {
    for (int i = 0; i + 1 < walk && end < 0; ++i) {
      const auto index = at + static_cast<std::size_t>(i);
      if (index >= plain.tokens.size()) break;
      const TokenId token = plain.tokens[index];
      if (std::ranges::find(plain.tokens, token) - plain.tokens.begin() ==
          static_cast<std::ptrdiff_t>(index)) {
        end = token;
        length = index + 1;
      }
    }
    at += static_cast<std::size_t>(walk);
  }
  ASSERT_GE(end, 0) << "no accepted run has a token for the first time";
  for (Request each : {request(DraftMode::none, 0, 0, 96), request(DraftMode::tree, 32, 0, 96)}) {
    each.end_tokens = {end};
    const Generated out = local_engine().generate(each);
    EXPECT_EQ(out.finish, FinishReason::stop);
    EXPECT_EQ(out.tokens,
              std::vector<TokenId>(plain.tokens.begin(),
                                   plain.tokens.begin() + static_cast<std::ptrdiff_t>(length)));
    each.ignore_end = true;
    EXPECT_EQ(local_engine().generate(each).tokens, plain.tokens);
  }
}

TEST(Round, EndTokensAreMaskedUntilTheLeastCount) {
  Request each = request(DraftMode::none, 0, 0, 30);
  const Generated free = local_engine().generate(each);
  each.end_tokens = {free.tokens[2]};
  each.min_tokens = 10;
  const Generated plain = local_engine().generate(each);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NE(plain.tokens[i], free.tokens[2]);
  EXPECT_GE(plain.tokens.size(), 10u);
  each.mode = DraftMode::tree;
  each.budget = 16;
  EXPECT_EQ(local_engine().generate(each).tokens, plain.tokens);
}

TEST(Round, TheTokenCountIsNeverCrossed) {
  const Generated plain = local_engine().generate(request(DraftMode::none, 0, 0, 40));
  for (int most = 1; most <= 12; ++most) {
    const Generated out = local_engine().generate(request(DraftMode::tree, 32, 0, most));
    EXPECT_EQ(out.finish, FinishReason::length);
    EXPECT_EQ(out.tokens, std::vector<TokenId>(plain.tokens.begin(), plain.tokens.begin() + most));
  }
}

TEST(Round, AShorterRequestInAUsedSlotRunsAsIfFirst) {
  const Request second = request(DraftMode::tree, 16, 0.8f, 24);
  const Generated expected = local_engine().generate(second, 5);
  Request first = request(DraftMode::tree, 32, 0.8f, 90);
  for (TokenId token = 1000; token < 1200; ++token) first.prompt.push_back(token);
  local_engine().generate(first, 6);
  EXPECT_EQ(local_engine().generate(second, 6), expected);
}

TEST(Round, ModesMayChangeFromRoundToRound) {
  const Generated plain = local_engine().generate(request(DraftMode::none, 0, 0.8f, 120));
  // Long stretches without a draft fill the room for waiting features more than once.
  std::vector<TestEngine::Running> one = {
      local_engine().begin(request(DraftMode::none, 0, 0.8f, 120), 0)};
  for (int round = 0; one[0].out.finish == FinishReason::none; ++round) {
    const bool drafts = round % 50 >= 45;
    one[0].request.mode = drafts ? DraftMode::tree : DraftMode::none;
    one[0].request.budget = drafts ? 16 : 0;
    local_engine().step(one);
  }
  local_engine().end(one[0]);
  EXPECT_EQ(one[0].out.tokens, plain.tokens);
}

TEST(Round, AnEntryOfASequenceThatIsDoneDoesNothing) {
  Request each = request(DraftMode::tree, 16, 0, 3);
  std::vector<TestEngine::Running> one = {local_engine().begin(each, 2)};
  while (one[0].out.finish == FinishReason::none) local_engine().step(one);
  StepPlan plan;
  plan.decode.push_back(local_engine().entry_for(one[0]));
  local_engine().run(plan);
  const SlotOutcome outcome = local_engine().round().outcomes()[0];
  EXPECT_EQ(outcome.token_count, 0);
  EXPECT_EQ(outcome.walk_length, 0);
  EXPECT_EQ(outcome.finish, FinishReason::none);
  local_engine().end(one[0]);
}

TEST(Round, PlansThatDoNotFitTheHeldStateAreErrors) {
  TestEngine& engine = local_engine();
  std::vector<TestEngine::Running> one = {engine.begin(request(DraftMode::none, 0), 1)};
  const auto refused = [&](const StepPlan& plan) { return !engine.round().run(plan).ok(); };
  const auto with = [&](auto change) {
    StepPlan plan;
    DecodeEntry entry = engine.entry_for(one[0]);
    change(entry);
    plan.decode.push_back(entry);
    return plan;
  };
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) { entry.slot = 999; })));
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) { ++entry.generation; })));
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) { entry.new_pages.push_back(-1); })));
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) { entry.new_pages.push_back(1 << 19); })));
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) { entry.mode = DraftMode::automatic; })));
  EXPECT_TRUE(refused(with([](DecodeEntry& entry) {
    entry.mode = DraftMode::tree;
    entry.node_budget = limits::tree_nodes + 1;
  })));
  StepPlan twice = with([](DecodeEntry&) {});
  twice.decode.push_back(twice.decode[0]);
  EXPECT_TRUE(refused(twice));
  StepPlan reopened;
  SlotOpen open;
  open.slot = 1;
  open.remaining_tokens = 1;
  reopened.opened.push_back(open);
  EXPECT_TRUE(refused(reopened));
  StepPlan chunk;
  PrefillChunk late;
  late.slot = 1;
  late.generation = one[0].generation;
  late.tokens.push_back(1);
  chunk.prefill.push_back(late);
  EXPECT_TRUE(refused(chunk)) << "a sequence that decodes has no prefill";
  engine.end(one[0]);
}

TEST(Round, DigestsAreEqualForEqualHistoriesAlone) {
  const auto digest_after = [](const Request& each, int rounds) {
    std::vector<TestEngine::Running> one = {local_engine().begin(each, 4, 1'000'000)};
    for (int i = 0; i < rounds; ++i) local_engine().step(one);
    const Digest digest = local_engine().table()[4].digest;
    local_engine().end(one[0]);
    return digest;
  };
  const Request base = request(DraftMode::tree, 16, 0.8f);
  const Digest expected = digest_after(base, 3);
  EXPECT_EQ(digest_after(base, 3), expected);
  EXPECT_NE(digest_after(base, 2), expected);
  Request other = base;
  other.sampling.seed = 8;
  EXPECT_NE(digest_after(other, 3), expected);
  other = base;
  other.budget = 15;
  EXPECT_NE(digest_after(other, 3), expected);
  other = base;
  other.prompt[0] = 1;
  EXPECT_NE(digest_after(other, 3), expected);
  other = base;
  other.mode = DraftMode::none;
  EXPECT_NE(digest_after(other, 3), expected);
}

}  // namespace
}  // namespace copse
