// Rounds of the embedded pair on a GPU: against the published reference's tokens and walks, against
// the CPU's draws, and of graphs against single launches.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/common/cuda/device.h"
#include "worker/cuda/engine_for_test.h"
#include "worker/golden_for_test.h"

namespace copse {
namespace {

using testing::CudaDriver;
using testing::embedded_pair;
using testing::Generated;
using testing::golden;
using testing::Request;
using testing::request_of;

struct Mode {
  DraftMode mode;
  int budget;
};
constexpr Mode kModes[] = {
    {DraftMode::none, 0}, {DraftMode::chain, 15}, {DraftMode::tree, 16}, {DraftMode::tree, 64}};

class CudaEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::cuda::has_device()) GTEST_SKIP() << "there is no GPU here";
    ASSERT_EQ(golden().size(), 9u);
  }
  static CudaDriver& float32() {
    static CudaDriver driver(embedded_pair(true));
    return driver;
  }
  static CudaDriver& bf16() {
    static CudaDriver driver(embedded_pair(false));
    return driver;
  }
};

TEST_F(CudaEngineTest, GreedyTokensEqualTheReferenceInEveryMode) {
  ASSERT_TRUE(float32().loaded());
  for (const Json& prompt : golden()) {
    const auto expected = prompt["output_ids"].get<std::vector<TokenId>>();
    for (const auto& [mode, budget] : kModes) {
      const Generated out = float32().generate(request_of(prompt, mode, budget));
      EXPECT_EQ(out.tokens, expected) << static_cast<int>(mode) << " " << budget;
      EXPECT_EQ(out.finish, FinishReason::length);
    }
  }
}

TEST_F(CudaEngineTest, WalksAreThoseOfTheReference) {
  const std::pair<const char*, Mode> kinds[] = {{"chain", {DraftMode::chain, 15}},
                                                {"tree_16", {DraftMode::tree, 16}},
                                                {"tree_32", {DraftMode::tree, 32}},
                                                {"tree_64", {DraftMode::tree, 64}}};
  for (const auto& [name, mode] : kinds) {
    double ours = 0;
    double theirs = 0;
    for (const Json& prompt : golden()) {
      const Generated out = float32().generate(request_of(prompt, mode.mode, mode.budget));
      auto expected = prompt[name]["acceptance_lengths"].get<std::vector<int>>();
      if (expected.size() > out.walks.size()) expected.resize(out.walks.size());
      ours += std::accumulate(out.walks.begin(), out.walks.end(), 0.0);
      theirs += std::accumulate(expected.begin(), expected.end(), 0.0);
    }
    std::printf("%s: %.0f accepted tokens, reference %.0f\n", name, ours, theirs);
    EXPECT_NEAR(ours / theirs, 1.0, 0.03) << name;
  }
}

TEST_F(CudaEngineTest, DrawsAreTheCpusAtAnyTemperature) {
  const Json& prompt = golden()[1];
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    for (const bool filtered : {false, true}) {
      Request request = request_of(prompt, DraftMode::none, 0);
      request.max_tokens = 48;
      request.sampling.temperature = 0.9f;
      request.sampling.seed = seed;
      if (filtered) {
        request.sampling.top_k = 40;
        request.sampling.top_p = 0.8f;
        request.sampling.min_p = 0.02f;
      }
      const Generated cpu = testing::local_engine().generate(request);
      for (const auto& [mode, budget] : kModes) {
        request.mode = mode;
        request.budget = budget;
        EXPECT_EQ(float32().generate(request).tokens, cpu.tokens)
            << "seed " << seed << " filtered " << filtered << " mode " << static_cast<int>(mode);
      }
    }
  }
}

TEST_F(CudaEngineTest, SequencesInOneBatchAreAsAlone) {
  std::vector<CudaDriver::Running> running;
  std::vector<CudaDriver::Running*> all;
  for (int i = 0; i < 4; ++i) {
    running.push_back(float32().begin(
        request_of(golden()[static_cast<std::size_t>(i)], kModes[i].mode, kModes[i].budget), i));
  }
  for (CudaDriver::Running& each : running) all.push_back(&each);
  for (int i = 0; i < 96; ++i) float32().step(all);
  for (std::size_t i = 0; i < running.size(); ++i) {
    EXPECT_EQ(running[i].out.tokens, golden()[i]["output_ids"].get<std::vector<TokenId>>());
    float32().end(running[i]);
  }
}

TEST_F(CudaEngineTest, APlanMayBeBegunBeforeTheLastIsFinished) {
  const Json& prompt = golden()[0];
  CudaDriver::Running running = float32().begin(request_of(prompt, DraftMode::tree, 16), 0);
  StepPlan plan;
  plan.decode.push_back(CudaDriver::entry_for(running));
  ASSERT_TRUE(float32().engine().begin(plan).ok());
  for (int i = 0; i < 96 && running.out.finish == FinishReason::none; ++i) {
    ASSERT_TRUE(float32().engine().begin(plan).ok());
    float32().take({&running});
  }
  const Generated done = running.out;
  float32().take({&running});  // of a sequence that is done: a no-op
  EXPECT_EQ(running.out.tokens, done.tokens);
  EXPECT_EQ(done.tokens, prompt["output_ids"].get<std::vector<TokenId>>());
  float32().end(running);
}

TEST_F(CudaEngineTest, GraphsGiveTheBitsOfSingleLaunches) {
  for (const bool is_float32 : {true, false}) {
    CudaDriver eager(embedded_pair(is_float32, false));
    CudaDriver& captured = is_float32 ? float32() : bf16();
    for (const auto& [mode, budget] : kModes) {
      Request request = request_of(golden()[2], mode, budget);
      request.sampling.temperature = 0.7f;
      request.sampling.seed = 5;
      const CudaDriver::Running a = eager.finished(request);
      const CudaDriver::Running b = captured.finished(request);
      EXPECT_EQ(a.out, b.out) << is_float32 << " " << static_cast<int>(mode);
      // Generations are part of a digest: only runs of the same age have the same.
      EXPECT_EQ(a.out.walks, b.out.walks);
    }
  }
}

// In bf16 the batch's shape rounds: a first difference is reported with the reference's margin.
TEST_F(CudaEngineTest, Bf16FollowsTheReferenceOrSaysWhere) {
  ASSERT_TRUE(bf16().loaded());
  int equal = 0;
  int total = 0;
  for (const Json& prompt : golden()) {
    const auto expected = prompt["output_ids"].get<std::vector<TokenId>>();
    for (const auto& [mode, budget] : kModes) {
      const Generated out = bf16().generate(request_of(prompt, mode, budget));
      ASSERT_EQ(out.tokens.size(), expected.size());
      const auto at = std::ranges::mismatch(out.tokens, expected).in1 - out.tokens.begin();
      ++total;
      equal += at == static_cast<std::ptrdiff_t>(expected.size());
      if (at < static_cast<std::ptrdiff_t>(expected.size())) {
        std::printf(
            "prompt of %zu tokens, mode %d budget %d: differs first at token %td; smallest "
            "margin of the reference %.3g\n",
            prompt["prompt_ids"].size(), static_cast<int>(mode), budget, at,
            prompt["smallest_top1_margin"].get<double>());
      }
    }
  }
  std::printf("%d of %d generations equal in bf16\n", equal, total);
  EXPECT_GT(equal, total / 2);
}

TEST_F(CudaEngineTest, WithoutADrafterItDecodesPlainly) {
  CudaEngineOptions options = embedded_pair(true);
  options.engine.drafter.clear();
  CudaDriver driver(options);
  ASSERT_TRUE(driver.loaded());
  const Generated out = driver.generate(request_of(golden()[1], DraftMode::none, 0));
  EXPECT_EQ(out.tokens, golden()[1]["output_ids"].get<std::vector<TokenId>>());
}

TEST_F(CudaEngineTest, APlanThatDoesNotFitIsAnError) {
  CudaDriver driver(embedded_pair(false));
  CudaDriver::Running running = driver.begin(request_of(golden()[1], DraftMode::none, 0), 0);
  StepPlan plan;
  PrefillChunk chunk;
  chunk.slot = 0;
  chunk.generation = running.generation;
  chunk.start = 3;
  chunk.tokens = {5};
  plan.prefill.push_back(chunk);
  ASSERT_TRUE(driver.engine().begin(plan).ok());
  EXPECT_FALSE(driver.engine().finish().ok());
  plan.prefill[0].generation += 7;
  EXPECT_FALSE(driver.engine().begin(plan).ok());
}

}  // namespace
}  // namespace copse
