#pragma once
// Steps 6-7: what a worker remembers of committed tokens. The worker owns both caches, allocates
// them once before `ready`, and hands them to the models; page ids index both alike.
//
// A committed token at absolute position p of a sequence lives in page page_table[p / 64], row
// p % 64. Rows of a running forward pass (tree nodes, a prefill chunk) live in the slot's scratch
// until kernels/kv_commit copies the accepted ones into pages: a draft never writes a shared page.
#include <cstddef>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/limits.h"
#include "base/types.h"

namespace copse {

// Target: one latent row per token and layer, [latent | rope]: the RMS-normed latent, then the one
// rotary key all heads share, rotated in the checkpoint's interleaved pair layout. Replicated on
// every rank. float32.
class LatentCache {
 public:
  struct Shape {
    int layers = 0;
    int width = 0;  // kv_lora_rank + qk_rope_head_dim
    int pages = 0;  // page ids 0 .. pages - 1
    int slots = 0;  // sequences; each has one scratch region per layer
    int scratch_rows = limits::tree_nodes + 1;
  };
  explicit LatentCache(const Shape& shape);

  const Shape& shape() const { return shape_; }
  std::size_t bytes() const { return (page_floats_ + scratch_floats_) * sizeof(float); }

  // [pages][page_tokens][width] of one layer.
  std::span<float> pages(int layer);
  std::span<const float> pages(int layer) const;
  // [slots][scratch_rows][width] of one layer; scratch(layer, slot) is the slot's part.
  std::span<float> scratch(int layer);
  std::span<const float> scratch(int layer) const;
  std::span<float> scratch(int layer, int slot);

  // All layers, as kernels/kv_commit takes them: [layers][pages][page_tokens][width] and
  // [layers][slots][scratch_rows][width].
  std::span<float> all_pages() { return {page_data_.get(), page_floats_}; }
  std::span<const float> all_scratch() const { return {scratch_data_.get(), scratch_floats_}; }

  // One row, [width].
  std::span<float> page_row(int layer, PageId page, int row);
  std::span<float> scratch_row(int layer, int slot, int row);

 private:
  Shape shape_;
  std::size_t page_floats_ = 0;
  std::size_t scratch_floats_ = 0;
  std::unique_ptr<float[]> page_data_;     // [layers][pages][page_tokens][width]
  std::unique_ptr<float[]> scratch_data_;  // [layers][slots][scratch_rows][width]
};

// Drafter: keys (normed, rotated at their absolute position) and values of committed tokens, for
// this rank's key/value heads. Row of a token: [kv_heads_local][head_dim]. float32.
class DraftCache {
 public:
  struct Shape {
    int layers = 0;
    int kv_heads = 0;  // of this rank
    int head_dim = 0;
    int pages = 0;
  };
  explicit DraftCache(const Shape& shape);

  const Shape& shape() const { return shape_; }
  std::size_t bytes() const { return 2 * floats_ * sizeof(float); }

  // [pages][page_tokens][kv_heads][head_dim] of one layer.
  std::span<float> keys(int layer);
  std::span<const float> keys(int layer) const;
  std::span<float> values(int layer);
  std::span<const float> values(int layer) const;

 private:
  Shape shape_;
  std::size_t floats_ = 0;  // of the keys alone, all layers
  std::unique_ptr<float[]> keys_;
  std::unique_ptr<float[]> values_;
};

}  // namespace copse
