// The step path allocates nothing once a worker is ready: rounds of every kind, counted.
#include <gtest/gtest.h>

#include "transport/allocation_count_for_test.h"
#include "worker/round_for_test.h"

namespace copse {
namespace {

using testing::local_engine;
using testing::Request;
using testing::TestEngine;

std::size_t bytes_of_one_step(std::vector<TestEngine::Running>& running) {
  StepPlan plan;
  for (TestEngine::Running& each : running) plan.decode.push_back(local_engine().entry_for(each));
  TestEngine& engine = local_engine();  // loads on its first use
  const std::size_t before = allocated_bytes();
  const Status status = engine.round().run(plan);
  const std::size_t bytes = allocated_bytes() - before;
  EXPECT_TRUE(status.ok());
  return bytes;
}

TEST(RoundAllocation, StepsOfEveryModeAllocateNothing) {
  std::vector<TestEngine::Running> running;
  Request request;
  request.prompt = {0, 659, 1003, 206, 659, 3376};
  request.max_tokens = 400;
  for (int slot = 0; slot < 4; ++slot) {
    request.mode = static_cast<DraftMode>(slot % 3);
    request.budget = request.mode == DraftMode::none ? 0 : 20;
    request.sampling.temperature = slot == 1 ? 0.0f : 0.9f;
    request.sampling.top_p = slot == 3 ? 0.9f : 1.0f;
    running.push_back(local_engine().begin(request, slot));
  }
  ASSERT_GT(allocated_bytes(), 0u) << "the counter works";
  for (int step = 0; step < 8; ++step) EXPECT_EQ(bytes_of_one_step(running), 0u) << step;
  for (TestEngine::Running& each : running) local_engine().end(each);
}

TEST(RoundAllocation, APrefillChunkAllocatesNothing) {
  StepPlan plan;
  SlotOpen open;
  open.slot = 7;
  open.generation = 77;
  open.remaining_tokens = 4;
  plan.opened.push_back(open);
  PrefillChunk chunk;
  chunk.slot = 7;
  chunk.generation = 77;
  chunk.last = true;
  for (TokenId token = 0; token < 50; ++token) chunk.tokens.push_back(token);
  chunk.new_pages = {159};
  plan.prefill.push_back(chunk);
  TestEngine& engine = local_engine();  // loads on its first use
  const std::size_t before = allocated_bytes();
  const Status status = engine.round().run(plan);
  EXPECT_EQ(allocated_bytes() - before, 0u);
  EXPECT_TRUE(status.ok());
  StepPlan release;
  release.released.push_back({7, 77});
  local_engine().run(release);
}

}  // namespace
}  // namespace copse
