// Trees and walks of the published reference code, exactly.
#include "kernels/tree_accept/tree_accept.h"
#include "kernels/tree_build/tree_build.h"
#include "kernels/tree_build/tree_cases_for_test.h"

namespace copse::kernels {
namespace {

using testing::flat;
using testing::load_tree_cases;

struct Tree {
  explicit Tree(const Json& tree_case)
      : log_probs(flat<float>(tree_case["log_probs"])),
        candidates(flat<TokenId>(tree_case["token_ids"])) {
    task.log_probs = log_probs;
    task.token_ids = candidates;
    task.positions = tree_case["positions"].get<int>();
    task.k = tree_case["top_k"].get<int>();
    task.budget = tree_case["budget"].get<int>();
    task.root_token = 7;
    task.root_position = 1000;
    const auto rows = static_cast<std::size_t>(1 + task.budget);
    tokens.resize(rows);
    parents.resize(rows);
    positions.resize(rows);
    ancestors.resize(rows * static_cast<std::size_t>(tree_mask_words(task.budget)));
    task.row_tokens = tokens;
    task.row_parents = parents;
    task.row_positions = positions;
    task.ancestors = ancestors;
  }

  std::vector<float> log_probs;
  std::vector<TokenId> candidates;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<std::int32_t> positions;
  std::vector<std::uint64_t> ancestors;
  TreeBuildTask task;
};

void expect_nodes(const Tree& tree, const Json& nodes) {
  ASSERT_EQ(static_cast<std::size_t>(tree.task.nodes), nodes["token_ids"].size());
  for (std::size_t i = 0; i < nodes["token_ids"].size(); ++i) {
    EXPECT_EQ(tree.tokens[i + 1], nodes["token_ids"][i].get<TokenId>()) << "node " << i;
    EXPECT_EQ(tree.parents[i + 1], nodes["parents"][i].get<int>()) << "node " << i;
    EXPECT_EQ(tree.positions[i + 1] - 1000, nodes["depths"][i].get<int>()) << "node " << i;
  }
}

void expect_walk(const Tree& tree, const Json& walk) {
  const auto targets = walk["target_tokens"].get<std::vector<TokenId>>();
  const auto rows = static_cast<std::size_t>(1 + tree.task.nodes);
  ASSERT_EQ(targets.size(), rows);
  std::vector<std::int32_t> accepted(static_cast<std::size_t>(tree.task.positions) + 1);
  TreeAcceptTask task;
  task.row_tokens = std::span(tree.tokens).first(rows);
  task.row_parents = std::span(tree.parents).first(rows);
  task.row_targets = targets;
  task.remaining = 1 << 20;
  task.accepted = accepted;
  tree_accept(std::span(&task, 1));
  const auto expected = walk["accepted"].get<std::vector<std::int32_t>>();
  accepted.resize(static_cast<std::size_t>(task.walk_length));
  EXPECT_EQ(accepted, expected);
  EXPECT_EQ(task.kept, task.walk_length);
  EXPECT_EQ(targets[static_cast<std::size_t>(accepted.back())], walk["bonus"].get<TokenId>());
}

TEST(TreeCases, NodesAndWalksEqualThePublishedReference) {
  const Json cases = load_tree_cases();
  ASSERT_FALSE(cases.empty());
  int number = 0;
  for (const Json& tree_case : cases) {
    SCOPED_TRACE("case " + std::to_string(number++));
    Tree tree(tree_case);
    TreeBuildWorkspace workspace(tree.task.budget, tree.task.positions);
    tree_build(std::span(&tree.task, 1), workspace);
    expect_nodes(tree, tree_case["nodes"]);
    for (const Json& walk : tree_case["walks"]) expect_walk(tree, walk);
    Tree reference(tree_case);
    tree_build_ref(std::span(&reference.task, 1));
    expect_nodes(reference, tree_case["nodes"]);
  }
}

}  // namespace
}  // namespace copse::kernels
