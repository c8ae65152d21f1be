#pragma once
// One sequence through the target, without a scheduler: what scoring and the oracle tests need.
// Owns the sequence's cache. Every rank of the group makes the same calls.
#include <span>
#include <vector>

#include "base/result.h"
#include "model/deepseek/target_model.h"

namespace copse {

class SequenceRunner {
 public:
  // `tokens_max`: of the whole sequence. The model must outlive this.
  SequenceRunner(TargetModel& model, int tokens_max);

  // Appends tokens, at most chunk_rows() of them, and commits their rows. Logits of all of them, or
  // of the last. The output is valid until the next call.
  enum class Logits : std::uint8_t { all, last };
  Result<ForwardOutput> append(std::span<const TokenId> tokens, Logits wanted);

  // Nodes after the first `prefix_length` committed tokens: parents as indices of nodes, smaller
  // than the node's own, -1 for a root. Logits of every node; nothing is committed.
  Result<ForwardOutput> tree(int prefix_length, std::span<const TokenId> tokens,
                             std::span<const std::int32_t> parents);

  int length() const { return length_; }
  int chunk_rows() const { return chunk_rows_; }
  LatentCache& cache() { return cache_; }

 private:
  TargetModel& model_;
  LatentCache cache_;
  int chunk_rows_;
  int length_ = 0;
  std::vector<PageId> pages_;
};

}  // namespace copse
