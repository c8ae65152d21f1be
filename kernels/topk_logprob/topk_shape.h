#pragma once
// Extents of topk_logprob.h, without the host's threads.
#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "base/types.h"

namespace copse::kernels {

// A leaf (largest logit, bits of the float sum of exp(logit - largest)) or a candidate (logit,
// token id). Candidates that a short shard lacks have the logit -infinity.
struct TopkWord {
  float value = 0;
  std::uint32_t bits = 0;
};

struct TopkShape {
  int rows = 0;
  int k = 0;           // 1 .. limits::tree_top_k
  int vocabulary = 0;  // of all ranks
  int world_size = 1;
  int vocabulary_begin = 0;  // of this rank's shard
  int vocabulary_rows = 0;   // real tokens of it
  int stride = 0;            // floats from one row of logits to the next; the tail is padding

  constexpr int leaves() const {  // of one rank
    const bool even =
        vocabulary % limits::reduction_leaves == 0 && limits::reduction_leaves % world_size == 0;
    return even ? limits::reduction_leaves / world_size : 1;
  }
  constexpr std::size_t part_words() const {  // of one rank: [rows][leaves() + k]
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(leaves() + k);
  }
};

}  // namespace copse::kernels
