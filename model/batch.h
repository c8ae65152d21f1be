#pragma once
// Steps 4 and 6: what one forward pass gets and gives. Rows of several sequences stand packed one
// after the other; a row is one token. Plain views: the worker owns the memory, nothing is copied.
#include <cstdint>
#include <span>

#include "base/types.h"
#include "model/kv_cache.h"

namespace copse {

// One sequence's rows in a ForwardBatch. Row i of the sequence is packed row first_row + i and is
// written to scratch row i of its slot.
//   plain decode    1 row: the bonus token
//   tree            1 + nodes rows: row 0 is the bonus token (the root), then the nodes in order
//   prefill chunk   a causal chain: row i's parent is i - 1
struct SequenceRows {
  int first_row = 0;
  int rows = 0;           // <= scratch_rows of the cache
  int prefix_length = 0;  // committed tokens in pages; the bonus token is not one
  int scratch_slot = 0;
  std::span<const PageId> pages;  // page table, at least ceil(prefix_length / 64)
  // Both empty for a causal chain (decode, chain draft, prefill chunk). Otherwise [rows]: parents
  // as row indices of this sequence, smaller than the row's own, -1 for a root that sees the prefix
  // and itself alone; and [rows][mask_words]: bit j of row i's words is set when row i sees row j
  // (its ancestors and itself). mask_words = ceil(rows / 64).
  std::span<const std::int32_t> parents;
  std::span<const std::uint64_t> ancestors;
  int mask_words = 0;
};

// Target pass. Every index is the caller's duty (CHECKed): token ids in [0, vocabulary), positions
// = prefix_length + depth, page ids inside the cache.
struct ForwardBatch {
  std::span<const TokenId> token_ids;        // [rows]
  std::span<const std::int32_t> positions;   // [rows], absolute
  std::span<const SequenceRows> sequences;   // their rows cover [0, rows) in order
  std::span<const std::int32_t> logit_rows;  // packed rows whose logits are wanted, ascending
};

// Views into the model's workspace, valid until its next forward.
struct ForwardOutput {
  std::span<const float> logits;    // [logit_rows][vocabulary_local]
  std::span<const float> features;  // [rows][feature_layers * hidden]: residual stream after each
                                    // feature layer in order; the same on every rank
};

// Drafter, after acceptance (and for every row of a prefill chunk): project features of committed
// tokens into the drafter's keys and values.
struct ContextBatch {
  struct Destination {
    PageId page = 0;
    std::int32_t row = 0;  // inside the page
  };
  std::span<const float> features;             // ForwardOutput::features, or rows kept from one
  std::span<const std::int32_t> feature_rows;  // [n] which of them
  std::span<const std::int32_t> positions;     // [n] absolute positions of those tokens
  std::span<const Destination> destinations;   // [n] where position p lives: page_table[p/64], p%64
};

// Drafter, step 4: one block [bonus, mask x (block_size - 1)] per sequence at positions
// prefix_length .. prefix_length + block_size - 1.
struct DraftSequence {
  TokenId bonus = 0;
  int prefix_length = 0;          // committed tokens whose context rows are in the drafter's pages
  std::span<const PageId> pages;  // at least ceil(prefix_length / 64)
};
struct DraftBatch {
  std::span<const DraftSequence> sequences;
  // Draft positions whose logits are wanted, the first ones; 0: all block_size - 1. A tree of B
  // nodes is at most B deep, so a small one needs few.
  int positions = 0;
};
struct DraftOutput {
  std::span<const float> logits;  // [sequences][positions][vocabulary_local]
};

}  // namespace copse
