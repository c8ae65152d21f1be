#pragma once
// Step 7: copy accepted rows from a slot's scratch into its pages, in every layer. Scratch and
// pages never overlap, so the order of the rows does not matter.
//
// For every device: one launch for all layers, sequences and rows; 16-byte aligned rows; moves
// 2 * layers * rows * width * 4 bytes. Indices are the caller's duty (CHECKed).
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"

namespace copse::kernels {

struct KvCommitRow {
  std::int32_t scratch_slot = 0;
  std::int32_t scratch_row = 0;
  PageId page = 0;            // page_table[position / 64]
  std::int32_t page_row = 0;  // position % 64
};

struct KvCommitCache {
  std::span<const float> scratch;  // [layers][slots][scratch_rows][width]
  std::span<float> pages;          // [layers][pages][page_tokens][width]
  int layers = 0;
  int slots = 0;
  int scratch_rows = 0;
  int pages_count = 0;
  int width = 0;
};

void kv_commit(const KvCommitCache& cache, std::span<const KvCommitRow> rows);

}  // namespace copse::kernels
