#pragma once
// How the work of a step is cut: shared by every version but the naive one.
//
// The queries of a sequence, (row, head) pairs with query = row * heads + head, are cut into tiles
// of `tile_queries`; its keys into blocks of 64 tokens, first those of the prefix (a page each),
// then those of its own rows (from scratch). An item is one tile against a run of blocks. A
// sequence's items stand one after another, run by run and within a run tile by tile, so that
// blocks that several tiles read are read at about the same time.
#include <cuda_runtime.h>

#include "base/limits.h"
#include "kernels/verify_attention/verify_attention_cuda.h"

namespace copse::kernels::cuda {

inline constexpr int verify_block_tokens = limits::page_tokens;
inline constexpr int verify_sequences_max = limits::batch_sequences;
static_assert(verify_sequences_max == 32, "one lane of a warp per sequence");

struct VerifyPlanSequence {
  int first_item;
  int first_partial;  // where its partial results stand; none where splits == 1
  int splits;         // runs of blocks that each tile is cut into
  int tiles;          // 0: no rows
  int blocks;         // of keys
  int prefix_blocks;  // the first of them, from pages
};

struct VerifyPlan {
  int items;
  VerifyPlanSequence sequences[verify_sequences_max];
};

// A way to cut queries into tiles, and what things then cost in nanoseconds.
struct VerifyTiling {
  int tile_queries = 0;
  int block_cost = 0;
  int item_cost = 0;
  int merge_cost = 0;  // of having split tiles at all
};

// What the host knows.
struct VerifyPlanShape {
  int heads = 0;
  int sequences = 0;
  VerifyTiling tilings[3];  // the plan takes the cheapest, the same for all sequences
  int tilings_count = 1;
  int items_max = 0;         // that the workspace has room for
  int workers = 0;           // blocks of threads that take items, all resident at once
  int partials_max = 0;      // that the workspace has room for
  bool prefix_only = false;  // blocks of the tail are not items, but one more partial of each tile
  bool bf16_partials = false;

  int tile_queries_max() const {
    int largest = 0;
    for (const VerifyTiling& tiling : tilings) {
      largest = tiling.tile_queries > largest ? tiling.tile_queries : largest;
    }
    return largest;
  }
};

// One item with all that a block of threads needs to begin: one read, no search.
struct alignas(16) VerifyItem {
  int sequence;
  int tile;
  int split;
  int splits;
  int first_block;
  int last_block;  // one past the last
  int prefix_blocks;
  int partial;  // its place among partial results; that of split 0 is split * tiles before it
  int tiles;    // of the sequence
  // Of the sequence, as in VerifySequence.
  int first_row;
  int rows;
  int prefix_length;
  int slot;
  int mask_words;
  int items;         // of the whole plan; also in the entry after the last, and on for `workers`
  int tile_queries;  // of the whole plan
  const PageId* pages;
  const std::uint64_t* ancestors;
  PageId first_page;  // of the first block, if it is one of the prefix
  int unused[3];
};
static_assert(sizeof(VerifyItem) == 96);

struct VerifyWorkspace {
  VerifyPlan* plan;
  VerifyItem* items;   // [items_max + workers]
  unsigned* counters;  // [partials_max]: arrivals at the tile first_partial + tile, since the plan
  float2* stats;       // [partial][tile_queries]: largest score (base 2 exponent), sum
  void* partials;      // [partial][tile_queries][latent] float or bf16
};

std::size_t verify_workspace_layout(const VerifyPlanShape& shape, int latent, void* base,
                                    VerifyWorkspace* workspace);
Status launch_verify_plan(const VerifyPlanShape& shape, const VerifySequence* sequences,
                          const VerifyWorkspace& workspace, Stream stream);

}  // namespace copse::kernels::cuda
