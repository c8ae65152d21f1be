#pragma once
// Which part of a sum over an input dimension a rank computes, so that the result does not depend
// on the number of ranks (docs/decisions/0002).
#include "base/limits.h"
#include "model/shard.h"

namespace copse {

struct SplitSum {
  Range part;      // of the dimension
  int leaves = 1;  // equal leaves inside the part
  bool operator==(const SplitSum&) const = default;
};

inline bool has_leaves(int count, const Shard& shard) {
  return count % limits::reduction_leaves == 0 && limits::reduction_leaves % shard.world_size == 0;
}

// Eight leaves in all where the dimension allows it, else one a rank.
inline SplitSum split_sum(int count, const Shard& shard) {
  return {even_part(count, shard),
          has_leaves(count, shard) ? limits::reduction_leaves / shard.world_size : 1};
}

// Heads stay whole: a rank's columns are those of its heads.
inline SplitSum split_heads(int heads, int width, const Shard& shard) {
  const bool leaves = heads % shard.world_size == 0 && has_leaves(heads * width, shard);
  return {even_part(heads, shard), leaves ? limits::reduction_leaves / shard.world_size : 1};
}

}  // namespace copse
