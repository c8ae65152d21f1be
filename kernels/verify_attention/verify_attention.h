#pragma once
// Multi-head latent attention with absorbed projections (arXiv 2405.04434, appendix C) of tree
// nodes, a decode row or a prefill chunk against a paged latent cache:
//
//   out[row][head] = sum over tokens t visible to row of softmax_t(scale * q[row][head] . kv[t]) *
//   v[t]
//
// where kv[t] is [latent | rope] and v[t] its first `latent` values. All heads share kv.
//
// Visible to row i of a sequence: the whole prefix (from pages), then its ancestors and itself
// (from the slot's scratch), in order of absolute position. Blocks begin at multiples of 64 of the
// absolute position and the online softmax rescales once a block, so a token takes the same place
// whether it is a committed row or a draft node (docs/decisions/0002). Inside a block: a score is
// 16 partial sums (value i of the row in partial i mod 16) added as the tree of kernels/rms_norm;
// the block's sum of exponentials has 16 partials by position mod 16; outputs add the block's
// tokens in order.
//
// q     [rows][heads][latent + rope] float32, contiguous
// pages [pages][64][latent + rope], scratch [slots][scratch_rows][latent + rope] of this layer
// out   [rows][heads][latent], contiguous
// Page ids, slots and masks are the caller's duty. Workspace: none. No alignment.
// GPU: q, cache and out in bf16 or float32, VerifySequence array in device memory, KV read once
// with rows * heads packed in M, split over multiprocessors and merged by log-sum-exp.
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels {

// Trivially copyable, so that an array of it can live on a device.
struct VerifySequence {
  int first_row = 0;  // row i of the sequence is row first_row + i of q and out
  int rows = 0;       // <= scratch_rows; its own latent rows stand in scratch already
  int prefix_length = 0;
  int slot = 0;                   // which scratch region
  const PageId* pages = nullptr;  // [ceil(prefix_length / 64)]
  // [rows][mask_words], bit j of row i: row j is an ancestor of i or i itself; ancestors have
  // smaller indices, and the n-th of them stands at position prefix_length + n. null: a causal
  // chain.
  const std::uint64_t* ancestors = nullptr;
  int mask_words = 0;
};

struct VerifyAttention {
  int heads = 0;  // of this rank
  int latent = 0;
  int rope = 0;
  float scale = 0;
  int scratch_rows = 0;
  const float* q = nullptr;
  const float* pages = nullptr;
  const float* scratch = nullptr;
  float* out = nullptr;
  std::span<const VerifySequence> sequences;
};

void verify_attention(const VerifyAttention& call, ThreadPool& pool);

// Visible KV once per sequence, q and out once.
std::uint64_t verify_attention_bytes_moved(const VerifyAttention& call);
// Multiply-adds count two; every row's visible tokens.
std::uint64_t verify_attention_flops(const VerifyAttention& call);

namespace ref {
void verify_attention(const VerifyAttention& call);
}

}  // namespace copse::kernels
