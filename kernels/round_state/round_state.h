#pragma once
// Rule 2 on a GPU: what a worker holds of each sequence between steps lives on the device, and a
// plan changes it there, so that the host queues plan N + 1 before it has read result N. The host
// keeps only what the coordinator decides: which slots are open, and their pages.
//
// A round is one launch each of read_plan, (draft), prepare_verify, (forward, sample, accept,
// commit), keep_features and finish_round; a prefill chunk of read_prefill, (forward, sample,
// commit) and finish_prefill. Packed row = s * rows_per_sequence + i; padding has position -1.
//
// Entries that do not fit the held state set RoundResult::misfit and are no-ops: the host turns
// that into an Error, as worker/round_plan.cpp does for its own state. Digests are those of
// worker/round.cpp, word for word.
#include <cstdint>

#include "base/limits.h"
#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/verify_attention/verify_attention.h"

namespace copse::kernels::cuda {

struct DeviceSlot {
  std::uint64_t digest;
  std::uint64_t seed;
  std::uint32_t choice;
  float temperature;
  float top_p;
  float min_p;
  std::int32_t top_k;
  std::int32_t remaining;  // tokens that may still be emitted
  std::int32_t drawn;      // emitted so far, over restarts
  std::int32_t min_tokens;
  std::int32_t ignore_end;
  std::int32_t length;  // committed tokens, the bonus token excluded
  std::int32_t has_bonus;
  TokenId bonus;
  std::int32_t done;
  std::int32_t pending;  // committed tokens whose features wait for the drafter's cache
  std::int32_t end_token_count;
  TokenId end_tokens[limits::end_token_ids];
};

enum class Misfit : std::int32_t { none, prefill_done, prefill_start, no_prefill, no_page };

struct SlotStart {
  std::int32_t slot;
  std::int32_t reserved;
  DeviceSlot state;
};

// Pages that an entry appends to its slot's table behind the `before` that are there.
struct NewPages {
  std::int32_t count;
  std::int32_t before;
  PageId pages[limits::plan_entry_pages];
};

struct PlanEntry {
  std::int32_t slot;
  std::int32_t mode;    // DraftMode as planned: 0 none, 1 chain, 2 tree
  std::int32_t budget;  // draft nodes as planned
  NewPages pages;
};

// What is copied to the device for a round; `entries` of them are filled in.
struct RoundPlan {
  std::int32_t entries;
  std::int32_t reserved;
  PlanEntry entry[limits::batch_sequences];
};
struct StartPlan {
  std::int32_t count;
  std::int32_t reserved;
  SlotStart start[limits::batch_sequences];
};
struct PrefillPlan {
  std::int32_t slot;
  std::uint32_t start;  // position of the first token
  std::int32_t last;
  std::int32_t count;
  NewPages pages;
  TokenId tokens[limits::tree_nodes];
};

// What one entry did, copied back.
struct RoundResult {
  std::uint64_t digest;
  std::int32_t slot;
  Misfit misfit;
  std::int32_t length;
  std::int32_t draft_nodes;
  std::int32_t walk_length;
  std::int32_t token_count;
  std::int32_t finish;  // FinishReason
  std::int32_t reserved;
  TokenId tokens[limits::draft_block + 1];
};

// Extents of a round; those of the graph that runs it.
struct RoundShape {
  int sequences = 1;          // of the graph; the plan may hold fewer
  int rows_per_sequence = 1;  // N, the root included
  int block = 0;              // the drafter's, 0 without one
  int waiting_max = 0;        // features a slot can keep waiting
  int slots = 0;
  int table_pages = 0;  // of one slot's page table
  int context_tokens = 0;
  constexpr int mask_words() const { return (rows_per_sequence + 63) / 64; }
};

// Device arrays of a round. S = sequences, N = rows_per_sequence, B = block, W = waiting_max.
struct RoundArrays {
  DeviceSlot* slots = nullptr;     // [slots]
  PageId* page_tables = nullptr;   // [slots][table_pages]
  RoundResult* results = nullptr;  // [S]
  // Written by read_plan.
  std::int32_t* entry_slot = nullptr;       // [S] -1: nothing to do
  std::int32_t* entry_mode = nullptr;       // [S] as run: near the context's end nothing is drafted
  std::int32_t* budget = nullptr;           // [S]
  std::int32_t* chain = nullptr;            // [S]
  TokenId* root_token = nullptr;            // [S]
  std::int32_t* root_position = nullptr;    // [S] the committed length; -1: nothing to do
  std::int32_t* draft_length = nullptr;     // [S] context of the drafter; -1: does not draft
  TokenId* draft_tokens = nullptr;          // [S][B] bonus, then masks
  std::int32_t* draft_positions = nullptr;  // [S][B] -1: does not draft
  std::int32_t* waiting_positions = nullptr;  // [S][W] of features that enter the cache now, or -1
  // Written by tree_build, or by prepare_verify where N is 1.
  std::int32_t* rows = nullptr;           // [S]
  TokenId* row_tokens = nullptr;          // [S][N]
  std::int32_t* row_parents = nullptr;    // [S][N]
  std::int32_t* row_positions = nullptr;  // [S][N]
  std::uint64_t* ancestors = nullptr;     // [S][N][mask_words]
  // Written by prepare_verify.
  VerifySequence* sequences = nullptr;  // [S]
  // Written by sample, then by accept.
  const TokenId* targets = nullptr;  // [S][N]
  std::int32_t* accepted = nullptr;  // [S][draft_block + 1]
  std::int32_t* walk_length = nullptr;
  std::int32_t* kept = nullptr;
  std::int32_t* at_end = nullptr;
};

Status start_slots(const StartPlan* plan, const RoundArrays& arrays, Stream stream);

// mask_token: the drafter's; draft_depth = block - 1.
Status read_plan(const RoundPlan* plan, const RoundShape& shape, TokenId mask_token,
                 const RoundArrays& arrays, Stream stream);
Status prepare_verify(const RoundShape& shape, const RoundArrays& arrays, Stream stream);
Status finish_round(const RoundShape& shape, const RoundArrays& arrays, Stream stream);

// One chunk as the first of S = 1 sequences of N rows: row arrays, sequences[0], entry_slot[0],
// root_position[0] (its start), kept[0] (its rows), logit_row[0] (its last row).
Status read_prefill(const PrefillPlan* plan, const RoundShape& shape, const RoundArrays& arrays,
                    std::int32_t* logit_row, Stream stream);
// targets[0] is the token drawn behind the last row; taken where the plan says last.
Status finish_prefill(const PrefillPlan* plan, const RoundShape& shape, const RoundArrays& arrays,
                      Stream stream);

// features [S * N][width] of accepted rows to waiting [slots][waiting_max][width], behind those
// that wait. width * sizeof(T) is a multiple of 16.
template <class T>
Status keep_features(const RoundShape& shape, const RoundArrays& arrays, const T* features,
                     int width, T* waiting, Stream stream);
// The features that enter now, in packed rows [S][waiting_max][width]; others are left alone.
template <class T>
Status gather_waiting(const RoundShape& shape, const RoundArrays& arrays, const T* waiting,
                      int width, T* out, Stream stream);

// Row i of sequence s, of the token at position p = positions[s * N + i] >= 0, to
// pages[page_tables[slots[s]][p / 64]][p % 64]. pages [..][64][width].
template <class T>
struct PageRows {
  int sequences = 0;
  int rows_per_sequence = 0;  // N
  const T* rows = nullptr;    // [S * N], `stride` elements apart
  std::int64_t stride = 0;
  int width = 0;                            // width and stride * sizeof(T): multiples of 16
  const std::int32_t* slots = nullptr;      // [S]; -1: nothing
  const std::int32_t* positions = nullptr;  // [S * N]; -1: nothing
  const PageId* page_tables = nullptr;      // [slots][table_pages]
  int table_pages = 0;
  T* pages = nullptr;
};
template <class T>
Status write_page_rows(const PageRows<T>& call, Stream stream);

}  // namespace copse::kernels::cuda
