#pragma once
// How one call's work is cut, for both paths and the merge. A query is one row of the block and one
// head; the queries of a key/value head stand together, query m = row * group + head of the group.
// A sequence's items are its visible context pages in order and, last, its own block.
#include <cmath>

#include "base/limits.h"
#include "kernels/draft_attention/draft_attention_cuda.h"

namespace copse::kernels::cuda::draft {

struct Layout {
  int group = 0;    // query heads per key/value head
  int queries = 0;  // of one key/value head: block * group
  int splits = 0;   // of a sequence's items, at most; a multiple of cluster
  int cluster = 1;  // neighbouring splits whose sums leave the multiprocessors as one part
  int least = 1;    // items that a split has at least, if there are any
  __host__ __device__ int parts() const { return splits / cluster; }
};

// Parts stand in the workspace as [sequences][kv_heads][parts][queries] of: dim sums of values
// weighted by exp(score - largest); and behind all of these the pair (largest, sum of weights).
struct Parts {
  float* values = nullptr;
  float2* softmax = nullptr;
};

template <class T>
Parts parts_of(const DraftAttention<T>& call, const Layout& layout) {
  const std::int64_t count =
      std::int64_t{call.sequences} * call.kv_heads * layout.parts() * layout.queries;
  // An even number of floats, so that pairs are aligned.
  const std::int64_t floats = (count * call.dim + 1) / 2 * 2;
  return {call.workspace, reinterpret_cast<float2*>(call.workspace + floats)};
}

// One sequence's items.
struct Items {
  int first_page = 0;  // entry of the page table
  int pages = 0;       // items of context; the block's own item comes behind them
  int per_split = 1;
  int active = 1;  // splits that have items
};

template <class T>
__device__ inline int first_visible(const DraftAttention<T>& call, int length, int row) {
  if (call.window == 0) return 0;
  return min(max(length + row - call.window + 1, 0), length);
}

template <class T>
__device__ inline Items items_of(const DraftAttention<T>& call, const Layout& layout, int length) {
  constexpr int page = limits::page_tokens;
  Items items;
  items.first_page = first_visible(call, length, 0) / page;
  items.pages = max((length + page - 1) / page - items.first_page, 0);
  const int count = items.pages + 1;
  items.per_split = max((count + layout.splits - 1) / layout.splits, layout.least);
  items.active = (count + items.per_split - 1) / items.per_split;
  return items;
}

// Up to 64 tokens: a page of the context, or the block. Token t is at keys + t * stride.
template <class T>
struct Tile {
  const T* keys = nullptr;
  const T* values = nullptr;
  std::int64_t stride = 0;
  int position = 0;  // of token 0
  int first = 0;     // tokens [first, end) may be read
  int end = 0;
  bool block = false;
};

// The page of an item; any number for the block's own.
template <class T>
__device__ inline PageId page_of(const DraftAttention<T>& call, const Items& items, int item,
                                 int sequence) {
  if (item >= items.pages) return 0;
  const int slot = call.slots == nullptr ? sequence : call.slots[sequence];
  return call.page_tables[std::int64_t{slot} * call.page_table_stride + items.first_page + item];
}

template <class T>
__device__ inline Tile<T> tile_of(const DraftAttention<T>& call, const Items& items, int item,
                                  std::int64_t page, int sequence, int kv_head, int length) {
  constexpr int page_tokens = limits::page_tokens;
  Tile<T> tile;
  if (item == items.pages) {
    const std::int64_t at =
        std::int64_t{sequence} * call.block * call.kv_stride + std::int64_t{kv_head} * call.dim;
    tile.keys = call.k + at;
    tile.values = call.v + at;
    tile.stride = call.kv_stride;
    tile.position = length;
    tile.end = call.block;
    tile.block = true;
    return tile;
  }
  tile.stride = std::int64_t{call.kv_heads} * call.dim;
  const std::int64_t at = page * page_tokens * tile.stride + std::int64_t{kv_head} * call.dim;
  tile.keys = call.key_pages + at;
  tile.values = call.value_pages + at;
  tile.position = (items.first_page + item) * page_tokens;
  tile.first = max(first_visible(call, length, 0) - tile.position, 0);
  tile.end = min(length - tile.position, page_tokens);
  return tile;
}

// Whether row `row` of the block sees token t of the tile.
template <class T>
__device__ inline bool visible(const DraftAttention<T>& call, const Tile<T>& tile, int t, int row,
                               int length) {
  if (t < tile.first || t >= tile.end) return false;
  return tile.block || call.window == 0 || tile.position + t > length + row - call.window;
}

// Adds the parts of every query of an active sequence that has more than one; out is T.
template <class T>
Status merge(const DraftAttention<T>& call, const Layout& layout, Stream stream);
// One of these fills the parts, or `out` itself where a sequence has one part.
template <class T>
Status plain(const DraftAttention<T>& call, const Layout& layout, Stream stream);
// dim is 32, 64 or 128, addresses and strides are aligned.
Status tensor_core(const DraftAttention<Bf16>& call, const Layout& layout, Stream stream);

}  // namespace copse::kernels::cuda::draft
