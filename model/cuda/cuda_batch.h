#pragma once
// What a pass on a GPU gets: shapes from the host, everything else in device memory, written by
// kernels before the pass, so that one captured graph serves every step of its shape. Packed row =
// sequence * rows_per_sequence + i; padding rows have position -1.
#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "base/types.h"
#include "kernels/verify_attention/verify_attention.h"

namespace copse {

struct CudaBatch {
  int sequences = 1;
  int rows_per_sequence = 1;
  const TokenId* tokens = nullptr;                    // [rows]
  const std::int32_t* positions = nullptr;            // [rows]
  const kernels::VerifySequence* sequence = nullptr;  // [sequences]
  // Rows whose logits are wanted, [logit_count]; null: all.
  const std::int32_t* logit_rows = nullptr;
  int logit_count = 0;

  int rows() const { return sequences * rows_per_sequence; }
  int logits() const { return logit_rows == nullptr ? rows() : logit_count; }
};

// As LatentCache, in T. The arrays belong to an arena.
template <class T>
struct CudaLatentCache {
  T* pages = nullptr;    // [layers][pages_count][64][width]
  T* scratch = nullptr;  // [layers][slots][scratch_rows][width]
  int layers = 0;
  int width = 0;
  int pages_count = 0;
  int slots = 0;
  int scratch_rows = 0;

  std::size_t layer_page_values() const {
    return static_cast<std::size_t>(pages_count) * limits::page_tokens *
           static_cast<std::size_t>(width);
  }
  std::size_t layer_scratch_values() const {
    return static_cast<std::size_t>(slots) * static_cast<std::size_t>(scratch_rows) *
           static_cast<std::size_t>(width);
  }
  T* layer_pages(int layer) const {
    return pages + static_cast<std::size_t>(layer) * layer_page_values();
  }
  T* layer_scratch(int layer) const {
    return scratch + static_cast<std::size_t>(layer) * layer_scratch_values();
  }
};

// As DraftCache, in T.
template <class T>
struct CudaDraftCache {
  T* keys = nullptr;  // [layers][pages_count][64][width]
  T* values = nullptr;
  int layers = 0;
  int width = 0;  // kv heads of this rank * head_dim
  int pages_count = 0;

  std::size_t layer_values() const {
    return static_cast<std::size_t>(pages_count) * limits::page_tokens *
           static_cast<std::size_t>(width);
  }
};

}  // namespace copse
