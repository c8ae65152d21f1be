#pragma once
// Which part of a dimension a rank of the tensor-parallel group holds.
#include "base/check.h"

namespace copse {

struct Shard {
  int rank = 0;
  int world_size = 1;
};

struct Range {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Contiguous parts in rank order. Where `count` does not divide, parts differ by one; a rank can
// hold nothing.
inline Range even_part(int count, const Shard& shard) {
  CHECK(count >= 0 && shard.rank >= 0 && shard.rank < shard.world_size);
  const auto at = [&](int rank) {
    return static_cast<int>(static_cast<long long>(count) * rank / shard.world_size);
  };
  return {at(shard.rank), at(shard.rank + 1)};
}

// Vocabulary: every rank has ceil(count / world_size) logits, the last ranks' tail is padding.
struct VocabularyShard {
  int begin = 0;
  int rows = 0;   // real tokens: begin .. begin + rows - 1
  int local = 0;  // row length of logits: rows and padding, equal on all ranks
};
inline VocabularyShard vocabulary_shard(int vocabulary, const Shard& shard) {
  const int local = (vocabulary + shard.world_size - 1) / shard.world_size;
  const int begin = shard.rank * local < vocabulary ? shard.rank * local : vocabulary;
  const int end = begin + local < vocabulary ? begin + local : vocabulary;
  return {begin, end - begin, local};
}

}  // namespace copse
