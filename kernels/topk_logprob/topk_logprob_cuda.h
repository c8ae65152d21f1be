#pragma once
// topk_logprob.h on a GPU. The vocabulary of all ranks is cut into `limits::reduction_leaves`
// slices, of which a rank holds reduction_leaves / world_size; a slice is the work of one block and
// one list of the merge:
//   topk_logprob_local   part [rows][slices()][1 + k]: the slice's leaf, then its k best,
//   descending (one all_gather of the parts) topk_logprob_merge   the k best of all slices
// Order of ids as on the CPU, exactly. Sums of exponentials have an order of their own, the same in
// every run and on every rank, and, where the vocabulary divides by 8, for every number of ranks.
//
// local reads rows * vocabulary_rows * 4 bytes once; no workspace.
#include <cstddef>

#include "base/result.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/topk_logprob/topk_shape.h"

namespace copse::kernels::cuda {

constexpr int topk_slices(const TopkShape& shape) {  // of one rank
  return shape.world_size < limits::reduction_leaves ? limits::reduction_leaves / shape.world_size
                                                     : 1;
}
constexpr std::size_t topk_part_words(const TopkShape& shape) {  // of one rank
  return static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(topk_slices(shape)) *
         static_cast<std::size_t>(1 + shape.k);
}

// logits: [rows][stride], 16-byte aligned; part: [topk_part_words()].
Status topk_logprob_local(const TopkShape& shape, const float* logits, TopkWord* part,
                          Stream stream);
// parts: [world_size][topk_part_words()]; log_probs and token_ids: [rows][k], descending. Missing
// candidates have the log-probability -infinity and the id 0; a NaN among the logits makes the
// row's log-probabilities NaN.
Status topk_logprob_merge(const TopkShape& shape, const TopkWord* parts, float* log_probs,
                          TokenId* token_ids, Stream stream);

}  // namespace copse::kernels::cuda
