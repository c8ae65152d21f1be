#include <algorithm>

#include "base/check.h"
#include "kernels/tree_accept/tree_accept.h"

namespace copse::kernels {
namespace {

int child_with_token(const TreeAcceptTask& task, int row, TokenId token) {
  const int rows = static_cast<int>(task.row_tokens.size());
  for (int next = row + 1; next < rows; ++next) {
    const auto i = static_cast<std::size_t>(next);
    if (task.row_parents[i] == row && task.row_tokens[i] == token) return next;
  }
  return -1;
}

void walk(TreeAcceptTask& task) {
  task.walk_length = 0;
  for (int row = 0; row >= 0;) {
    CHECK(static_cast<std::size_t>(task.walk_length) < task.accepted.size());
    task.accepted[static_cast<std::size_t>(task.walk_length++)] = row;
    row = child_with_token(task, row, task.row_targets[static_cast<std::size_t>(row)]);
  }
}

void cut(TreeAcceptTask& task) {
  const int most = std::min(task.walk_length, task.remaining);
  task.at_end = false;
  task.kept = 0;
  while (task.kept < most && !task.at_end) {
    const auto row = static_cast<std::size_t>(task.accepted[static_cast<std::size_t>(task.kept)]);
    const TokenId token = task.row_targets[row];
    task.at_end = std::ranges::find(task.end_tokens, token) != task.end_tokens.end();
    ++task.kept;
  }
}

}  // namespace

void tree_accept(std::span<TreeAcceptTask> tasks) {
  for (TreeAcceptTask& task : tasks) {
    CHECK(!task.row_tokens.empty() && task.remaining >= 1);
    CHECK(task.row_parents.size() == task.row_tokens.size());
    CHECK(task.row_targets.size() == task.row_tokens.size());
    walk(task);
    cut(task);
  }
}

}  // namespace copse::kernels
