#include <set>
#include <tuple>
#include <vector>

#include "kernels/tree_build/tree_build_rows.h"

namespace copse::kernels {
namespace {

// (-log weight, ranks, parent row): the order of the published code's heap entries.
using Candidate = std::tuple<double, std::vector<int>, int>;

void build_best_first(TreeBuildTask& task) {
  std::set<Candidate> frontier;
  if (is_candidate(task, 1, 0)) {
    frontier.insert({-double{tree_log_prob(task, 1, 0)}, std::vector<int>{0}, 0});
  }
  while (task.nodes < task.budget && !frontier.empty()) {
    const auto [negative, ranks, parent] = *frontier.begin();
    frontier.erase(frontier.begin());
    const int depth = static_cast<int>(ranks.size());
    const int rank = ranks.back();
    const double log_weight = -negative;
    const int row = add_tree_row(task, parent, depth, rank);
    if (is_candidate(task, depth, rank + 1)) {
      std::vector<int> sibling = ranks;
      sibling.back() = rank + 1;
      const double without = log_weight - tree_log_prob(task, depth, rank);
      frontier.insert({-(without + tree_log_prob(task, depth, rank + 1)), sibling, parent});
    }
    if (is_candidate(task, depth + 1, 0)) {
      std::vector<int> child = ranks;
      child.push_back(0);
      frontier.insert({-(log_weight + tree_log_prob(task, depth + 1, 0)), child, row});
    }
  }
}

}  // namespace

void tree_build_ref(std::span<TreeBuildTask> tasks) {
  for (TreeBuildTask& task : tasks) {
    start_tree(task);
    if (task.chain) {
      build_chain(task);
    } else {
      build_best_first(task);
    }
    finish_tree(task);
  }
}

}  // namespace copse::kernels
