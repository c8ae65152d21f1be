#include "kernels/tree_build/tree_build_rows.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace copse::kernels {

float tree_log_prob(const TreeBuildTask& task, int depth, int rank) {
  return task.log_probs[tree_index((depth - 1) * task.k + rank)];
}

bool is_candidate(const TreeBuildTask& task, int depth, int rank) {
  if (depth > task.positions || rank >= task.k) return false;
  return tree_log_prob(task, depth, rank) > -std::numeric_limits<float>::infinity();
}

void start_tree(TreeBuildTask& task) {
  const std::size_t rows = tree_index(1 + task.budget);
  CHECK(task.budget >= 0 && task.positions >= 0 && task.k >= 0);
  CHECK(task.log_probs.size() >= tree_index(task.positions * task.k));
  CHECK(task.token_ids.size() >= tree_index(task.positions * task.k));
  CHECK(task.row_tokens.size() >= rows && task.row_parents.size() >= rows);
  CHECK(task.row_positions.size() >= rows);
  CHECK(task.ancestors.size() >= rows * tree_index(tree_mask_words(task.budget)));
  task.nodes = 0;
  task.row_tokens[0] = task.root_token;
  task.row_parents[0] = -1;
  task.row_positions[0] = task.root_position;
}

int add_tree_row(TreeBuildTask& task, int parent, int depth, int rank) {
  const int row = ++task.nodes;
  task.row_tokens[tree_index(row)] = task.token_ids[tree_index((depth - 1) * task.k + rank)];
  task.row_parents[tree_index(row)] = parent;
  task.row_positions[tree_index(row)] = task.root_position + depth;
  return row;
}

void build_chain(TreeBuildTask& task) {
  const int length = std::min(task.budget, task.positions);
  for (int depth = 1; depth <= length && is_candidate(task, depth, 0); ++depth) {
    add_tree_row(task, depth - 1, depth, 0);
  }
}

void finish_tree(TreeBuildTask& task) {
  const std::size_t words = tree_index(tree_mask_words(task.nodes));
  for (int row = 0; row <= task.nodes; ++row) {
    const auto mask = task.ancestors.subspan(tree_index(row) * words, words);
    const int parent = task.row_parents[tree_index(row)];
    if (parent < 0) {
      std::ranges::fill(mask, 0u);
    } else {
      std::ranges::copy(task.ancestors.subspan(tree_index(parent) * words, words), mask.begin());
    }
    mask[tree_index(row / 64)] |= std::uint64_t{1} << (row % 64);
  }
}

}  // namespace copse::kernels
