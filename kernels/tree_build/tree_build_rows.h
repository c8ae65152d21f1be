#pragma once
// What reference and fast version share: how nodes become rows, and what no draft order changes.
#include "kernels/tree_build/tree_build.h"

namespace copse::kernels {

inline std::size_t tree_index(int value) {
  return static_cast<std::size_t>(value);
}

// Adds the node (parent row, depth, rank) as the next row; returns its row.
int add_tree_row(TreeBuildTask& task, int parent, int depth, int rank);
void start_tree(TreeBuildTask& task);
void build_chain(TreeBuildTask& task);
// Ancestor masks from row_parents: a row sees what its parent sees, and itself.
void finish_tree(TreeBuildTask& task);
// A candidate that may be drafted at all.
bool is_candidate(const TreeBuildTask& task, int depth, int rank);
float tree_log_prob(const TreeBuildTask& task, int depth, int rank);

}  // namespace copse::kernels
