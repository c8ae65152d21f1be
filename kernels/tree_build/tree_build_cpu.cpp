#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/tree_build/tree_build_rows.h"

namespace copse::kernels {
namespace {

using Entry = TreeBuildWorkspace::Entry;

// A rank tuple is a row of bytes, so the tie rule of tuples is memcmp and then the length.
class Frontier {
 public:
  explicit Frontier(TreeBuildWorkspace& workspace)
      : heap_(workspace.heap),
        paths_(workspace.paths.data()),
        stride_(tree_index(workspace.positions_max)) {
    heap_.clear();
  }

  bool empty() const { return heap_.empty(); }

  // `ranks`: of the path up to the new entry's parent, depth - 1 of them.
  void push(double log_weight, int parent, int depth, int rank, const std::uint8_t* ranks) {
    std::uint8_t* path = paths_ + stride_ * tree_index(pushed_);
    if (depth > 1) std::memcpy(path, ranks, tree_index(depth - 1));
    path[depth - 1] = static_cast<std::uint8_t>(rank);
    heap_.push_back({log_weight, parent, static_cast<std::int16_t>(depth),
                     static_cast<std::int16_t>(rank), pushed_++});
    std::push_heap(heap_.begin(), heap_.end(), Later{*this});
  }

  Entry pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later{*this});
    const Entry entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

  const std::uint8_t* ranks(const Entry& entry) const {
    return paths_ + stride_ * tree_index(entry.path);
  }

 private:
  struct Later {
    const Frontier& frontier;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.log_weight != b.log_weight) return a.log_weight < b.log_weight;
      const int order =
          std::memcmp(frontier.ranks(a), frontier.ranks(b), tree_index(std::min(a.depth, b.depth)));
      return order != 0 ? order > 0 : a.depth > b.depth;
    }
  };

  std::vector<Entry>& heap_;
  std::uint8_t* paths_;
  std::size_t stride_;
  std::int32_t pushed_ = 0;
};

void build_best_first(TreeBuildTask& task, TreeBuildWorkspace& workspace) {
  Frontier frontier(workspace);
  if (is_candidate(task, 1, 0)) frontier.push(tree_log_prob(task, 1, 0), 0, 1, 0, nullptr);
  while (task.nodes < task.budget && !frontier.empty()) {
    const Entry entry = frontier.pop();
    const int row = add_tree_row(task, entry.parent, entry.depth, entry.rank);
    const std::uint8_t* ranks = frontier.ranks(entry);
    if (is_candidate(task, entry.depth, entry.rank + 1)) {
      const double without = entry.log_weight - tree_log_prob(task, entry.depth, entry.rank);
      const double sibling = without + tree_log_prob(task, entry.depth, entry.rank + 1);
      frontier.push(sibling, entry.parent, entry.depth, entry.rank + 1, ranks);
    }
    if (is_candidate(task, entry.depth + 1, 0)) {
      const double child = entry.log_weight + tree_log_prob(task, entry.depth + 1, 0);
      frontier.push(child, row, entry.depth + 1, 0, ranks);
    }
  }
}

}  // namespace

TreeBuildWorkspace::TreeBuildWorkspace(int nodes, int positions)
    : nodes_max(nodes),
      positions_max(positions),
      paths(tree_index(2 * nodes + 1) * tree_index(std::max(positions, 1))) {
  heap.reserve(tree_index(2 * nodes + 1));
}

void tree_build(std::span<TreeBuildTask> tasks, TreeBuildWorkspace& workspace) {
  for (TreeBuildTask& task : tasks) {
    CHECK(task.budget <= workspace.nodes_max && task.positions <= workspace.positions_max);
    CHECK(task.k <= limits::tree_top_k);
    start_tree(task);
    if (task.chain) {
      build_chain(task);
    } else {
      build_best_first(task, workspace);
    }
    finish_tree(task);
  }
}

}  // namespace copse::kernels
