#include "kernels/tree_accept/tree_accept_cuda.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda/testing.h"
#include "kernels/tree_accept/tree_accept.h"

namespace copse::kernels::cuda {
namespace {

using testing::download;
using testing::upload;

constexpr std::size_t walk_max = limits::draft_block + 1;
constexpr std::int32_t poison = -99;

struct Walks {
  std::size_t rows_per_sequence;
  std::vector<std::int32_t> rows;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<TokenId> targets;
  std::vector<DeviceSlot> slots;
  std::vector<std::int32_t> entry_slot;
};

// A tree of few different tokens, and targets that often continue it; the padding is poison that
// would go on with the walk.
void add_sequence(Walks& walks, std::size_t rows, SeededRandom& random) {
  const std::size_t first = walks.tokens.size();
  const std::size_t n = walks.rows_per_sequence;
  std::vector<int> depth(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t parent = i == 0 ? 0 : std::max(i, std::size_t{4}) - 4 + random.below(4);
    parent = std::min(parent, i == 0 ? 0 : i - 1);
    while (depth[parent] >= limits::draft_block - 1) parent = 0;
    if (i > 0) depth[i] = depth[parent] + 1;
    walks.parents.push_back(i == 0 ? -1 : static_cast<std::int32_t>(parent));
    walks.tokens.push_back(static_cast<TokenId>(random.below(4)));
    walks.targets.push_back(static_cast<TokenId>(random.below(4)));
  }
  // Mostly the target's choice is a child that is there.
  for (std::size_t i = 1; i < n; ++i) {
    if (random.below(3) > 0) {
      walks.targets[first + static_cast<std::size_t>(walks.parents[first + i])] =
          walks.tokens[first + i];
    }
  }
  walks.rows.push_back(static_cast<std::int32_t>(rows));
  DeviceSlot slot{};
  slot.remaining = 1 + static_cast<std::int32_t>(random.below(12));
  slot.ignore_end = random.below(4) == 0 ? 1 : 0;
  slot.end_token_count = static_cast<std::int32_t>(random.below(limits::end_token_ids + 1));
  for (TokenId& token : slot.end_tokens) token = static_cast<TokenId>(random.below(60));
  for (int i = slot.end_token_count; i < limits::end_token_ids; ++i) slot.end_tokens[i] = 1;
  walks.slots.push_back(slot);
}

TreeAcceptTask expected_walk(const Walks& walks, std::size_t s, std::span<std::int32_t> accepted) {
  const std::size_t first = s * walks.rows_per_sequence;
  const auto rows = static_cast<std::size_t>(walks.rows[s]);
  const DeviceSlot& slot = walks.slots[static_cast<std::size_t>(walks.entry_slot[s])];
  TreeAcceptTask task;
  task.row_tokens = std::span(walks.tokens).subspan(first, rows);
  task.row_parents = std::span(walks.parents).subspan(first, rows);
  task.row_targets = std::span(walks.targets).subspan(first, rows);
  if (slot.ignore_end == 0) {
    task.end_tokens =
        std::span(slot.end_tokens).first(static_cast<std::size_t>(slot.end_token_count));
  }
  task.remaining = slot.remaining;
  task.accepted = accepted;
  kernels::tree_accept(std::span(&task, 1));
  return task;
}

class TreeAcceptCuda : public testing::CudaTest {
 protected:
  void expect_exact(const Walks& walks) {
    const std::size_t sequences = walks.rows.size();
    const auto tokens = upload(walks.tokens);
    const auto parents = upload(walks.parents);
    const auto targets = upload(walks.targets);
    const auto rows = upload(walks.rows);
    const auto slots = upload(walks.slots);
    const auto entry_slot = upload(walks.entry_slot);
    const auto accepted = upload(std::vector<std::int32_t>(sequences * walk_max, poison));
    const auto length = upload(std::vector<std::int32_t>(sequences, poison));
    const auto kept = upload(std::vector<std::int32_t>(sequences, poison));
    const auto at_end = upload(std::vector<std::int32_t>(sequences, poison));
    const TreeAcceptCall call = {static_cast<int>(sequences),
                                 static_cast<int>(walks.rows_per_sequence),
                                 tokens.data(),
                                 parents.data(),
                                 rows.data(),
                                 targets.data(),
                                 slots.data(),
                                 entry_slot.data(),
                                 accepted.data(),
                                 length.data(),
                                 kept.data(),
                                 at_end.data()};
    ASSERT_TRUE(tree_accept(call, stream()).ok());
    synchronize();
    const auto lengths = download(length);
    const auto kept_counts = download(kept);
    const auto ends = download(at_end);
    const auto walked = download(accepted);
    for (std::size_t s = 0; s < sequences; ++s) {
      SCOPED_TRACE("sequence " + std::to_string(s));
      std::vector<std::int32_t> expected(walk_max, poison);
      TreeAcceptTask task;
      if (walks.rows[s] > 0) task = expected_walk(walks, s, expected);
      EXPECT_EQ(lengths[s], task.walk_length);
      EXPECT_EQ(kept_counts[s], task.kept);
      EXPECT_EQ(ends[s], task.at_end ? 1 : 0);
      EXPECT_EQ(std::vector<std::int32_t>(
                    walked.begin() + static_cast<std::ptrdiff_t>(s * walk_max),
                    walked.begin() + static_cast<std::ptrdiff_t>((s + 1) * walk_max)),
                expected);
    }
  }
};

TEST_F(TreeAcceptCuda, WalksOfRandomTreesAsOnTheCpu) {
  SeededRandom random(11);
  for (const std::size_t n :
       {std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{65}, std::size_t{513}}) {
    for (int round = 0; round < 20; ++round) {
      Walks walks;
      walks.rows_per_sequence = n;
      const std::size_t sequences = 1 + random.below(32);
      for (std::size_t s = 0; s < sequences; ++s) {
        add_sequence(walks, s % 6 == 4 ? 0 : 1 + random.below(n), random);
      }
      for (std::size_t s = 0; s < sequences; ++s) {
        const auto slot = static_cast<std::int32_t>((s * 7 + 3) % sequences);
        walks.entry_slot.push_back(walks.rows[s] == 0 ? -1 : slot);
      }
      SCOPED_TRACE("rows " + std::to_string(n) + " round " + std::to_string(round));
      expect_exact(walks);
      if (HasFailure()) return;
    }
  }
}

TEST_F(TreeAcceptCuda, TheLongestChainIsWalkedToItsEnd) {
  Walks walks;
  walks.rows_per_sequence = limits::draft_block;
  for (int i = 0; i < limits::draft_block; ++i) {
    walks.tokens.push_back(100 + i);
    walks.parents.push_back(i - 1);
    walks.targets.push_back(101 + i);
  }
  walks.rows = {limits::draft_block};
  DeviceSlot slot{};
  slot.remaining = 1000;
  slot.end_token_count = 1;
  slot.end_tokens[0] = 100 + limits::draft_block;  // the bonus token
  walks.slots = {slot};
  walks.entry_slot = {0};
  expect_exact(walks);
}

}  // namespace
}  // namespace copse::kernels::cuda
