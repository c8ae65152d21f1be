#pragma once
// Step 4: the k best log-probabilities of each row of logits whose vocabulary is sharded over
// ranks, without gathering a row. Two parts, so that the collective stands between them:
//   topk_logprob_local   this rank's k best candidates and log-sum-exp leaves of each row
//   (one all_gather of the parts)
//   topk_logprob_merge   the k best of all, log-prob = logit - lse in float32
//
// Order: larger logit first, equal logits by the lower id. The log-sum-exp is summed over
// limits::reduction_leaves equal leaves of the vocabulary joined as a fixed tree (docs/decisions
// 0002), so log-probabilities do not depend on the number of ranks where the vocabulary divides by
// 8; where it does not, a rank is one leaf.
//
// For every device: local is one launch (rows * vocabulary_local * 4 bytes read, once), merge one
// small launch on every rank; no workspace; nothing is read by the host.
#include <span>

#include "kernels/common/thread_pool.h"
#include "kernels/topk_logprob/topk_shape.h"

namespace copse::kernels {

// logits: [rows][stride]; part: [part_words()].
void topk_logprob_local(const TopkShape& shape, std::span<const float> logits,
                        std::span<TopkWord> part, ThreadPool& threads);
void topk_logprob_local_ref(const TopkShape& shape, std::span<const float> logits,
                            std::span<TopkWord> part);

// parts: [world_size][part_words()]; log_probs and token_ids: [rows][k], descending. Missing
// candidates have the log-probability -infinity; a NaN among the logits makes the row's all NaN.
void topk_logprob_merge(const TopkShape& shape, std::span<const TopkWord> parts,
                        std::span<float> log_probs, std::span<TokenId> token_ids);

}  // namespace copse::kernels
