#pragma once
// Attention of a drafter's block on the GPU: the contract of draft_attention.h with device arrays.
// Every row of a sequence's block sees the context (committed tokens, from pages; through a window
// where there is one) and the whole block, both ways.
//
// Must move: keys and values of the visible context once, 2 * length * kv_heads * dim * sizeof(T)
// a sequence. The context is split over blocks of the grid in whole pages; each writes its part of
// the softmax, and a second launch adds the parts in order of position, so the bits depend on the
// sequence's own length and the call's shape alone.
//
// T = Bf16 with dim 32, 64 or 128 runs on tensor cores; everything else on a plain path. dim <=
// 256.
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"

namespace copse::kernels::cuda {

// Sequence s has rows s * block .. + block - 1 of q, k, v and out. Strides in elements; addresses
// and strides are multiples of 16 bytes (plain path: any).
template <class T>
struct DraftAttention {
  int sequences = 0;
  int block = 0;     // rows per sequence, <= limits::draft_block
  int heads = 0;     // of this rank, a multiple of kv_heads
  int kv_heads = 0;  // head h reads key/value head h / (heads / kv_heads)
  int dim = 0;
  int window =
      0;  // 0: all. Else the row at position p sees context tokens at positions > p - window
  float scale = 0;
  const T* q = nullptr;  // [rows][heads][dim], rows q_stride apart, normed and rotated
  std::int64_t q_stride = 0;
  const T* k = nullptr;  // [rows][kv_heads][dim] of the block's own rows; v likewise
  const T* v = nullptr;
  std::int64_t kv_stride = 0;
  const T* key_pages = nullptr;  // [pages][64][kv_heads][dim]
  const T* value_pages = nullptr;
  T* out = nullptr;  // [rows][heads][dim], contiguous
  // The context's length: committed tokens; the block's row i is at position length + i. Negative:
  // the sequence is inactive and its rows of `out` stay as they are.
  const std::int32_t* lengths = nullptr;  // [sequences]
  const std::int32_t* slots = nullptr;    // [sequences], row of page_tables; null: the sequence
  const PageId* page_tables = nullptr;    // [..][page_table_stride]
  int page_table_stride = 0;              // most pages of a sequence
  float* workspace =
      nullptr;  // draft_attention_workspace_bytes(), aligned to 16, one call at a time
};

template <class T>
Status draft_attention(const DraftAttention<T>& call, Stream stream);

// Of a call with these extents on the open device.
std::size_t draft_attention_workspace_bytes(int sequences, int block, int heads, int kv_heads,
                                            int dim);

}  // namespace copse::kernels::cuda
