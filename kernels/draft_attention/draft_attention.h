#pragma once
// Attention of a drafter's block (arXiv 2602.06036): every row of a sequence's block attends to the
// sequence's context (keys and values of committed tokens, from pages) and to the whole block, both
// ways. Grouped queries: head h uses key/value head h / (heads / kv_heads).
//
// Order of summation as in kernels/verify_attention: context by position, then the block's rows, in
// blocks that begin at multiples of 64 of the absolute position.
//
// q          [rows][heads][dim] normed and rotated; sequence s has rows s * block .. + block - 1
// k, v       [rows][kv_heads][dim] of the block's own rows
// pages      keys and values each [pages][64][kv_heads][dim] of this layer
// out        [rows][heads][dim]
// All float32, contiguous. Workspace: none. GPU: same in bf16.
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernels/common/thread_pool.h"

namespace copse::kernels {

struct DraftContext {
  int length = 0;                 // committed tokens; the block's row i is at position length + i
  const PageId* pages = nullptr;  // [ceil(length / 64)]
};

struct DraftAttention {
  int heads = 0;  // of this rank, a multiple of kv_heads
  int kv_heads = 0;
  int dim = 0;
  int block = 0;   // rows per sequence
  int window = 0;  // 0: all. Else a row at position p sees context tokens at positions > p - window
  float scale = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* key_pages = nullptr;
  const float* value_pages = nullptr;
  float* out = nullptr;
  std::span<const DraftContext> sequences;
};

void draft_attention(const DraftAttention& call, ThreadPool& pool);

std::uint64_t draft_attention_bytes_moved(const DraftAttention& call);

namespace ref {
void draft_attention(const DraftAttention& call);
}

}  // namespace copse::kernels
