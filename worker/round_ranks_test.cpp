// Rounds over several ranks: processes with a shard each, joined by shared memory, give the tokens
// and the walks of one rank, and hold equal digests.
#include <gtest/gtest.h>

#include "transport/collective/ranks_for_test.h"
#include "worker/round_for_test.h"

namespace copse {
namespace {

using testing::Generated;
using testing::local_engine;
using testing::Request;
using testing::TestEngine;

std::vector<Request> requests() {
  Request plain;
  plain.prompt = {0, 659, 1003, 206, 659, 3376, 339, 834, 356, 1932, 598, 864};
  plain.max_tokens = 24;
  plain.sampling.seed = 7;
  Request tree = plain;
  tree.mode = DraftMode::tree;
  tree.budget = 32;
  Request chain = plain;
  chain.mode = DraftMode::chain;
  chain.budget = 15;
  Request nucleus = tree;
  nucleus.sampling.temperature = 1;
  nucleus.sampling.top_p = 0.9f;
  nucleus.sampling.top_k = 40;
  std::vector<Request> all = {plain, chain, tree, nucleus};
  for (Request request : {plain, chain, tree}) {
    request.sampling.temperature = 0.8f;
    all.push_back(request);
  }
  return all;
}

bool digests_agree(Collective& group, Digest mine) {
  std::vector<Digest> all(static_cast<std::size_t>(group.world_size()));
  const Status status =
      group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return status.ok() && std::ranges::all_of(all, [&](Digest each) { return each == mine; });
}

void expect_ranks_agree(int world_size) {
  std::vector<Generated> expected;
  for (const Request& request : requests()) expected.push_back(local_engine().generate(request));
  ShmOptions options;
  options.world_size = world_size;
  ShmJoin join;
  join.timeout = milliseconds(60'000);
  EXPECT_TRUE(processes_succeed(
      options,
      [&](Collective& group) {
        TestEngine engine(group);
        bool good = true;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const Generated out = engine.generate(requests()[i]);
          good = good && out == expected[i];
          good = good && digests_agree(group, engine.table()[0].digest);
        }
        return good && !::testing::Test::HasFailure();
      },
      join));
}

TEST(RoundRanks, TwoGiveWhatOneGives) {
  expect_ranks_agree(2);
}
TEST(RoundRanks, FourGiveWhatOneGives) {
  expect_ranks_agree(4);
}
TEST(RoundRanks, EightGiveWhatOneGives) {
  expect_ranks_agree(8);
}

}  // namespace
}  // namespace copse
