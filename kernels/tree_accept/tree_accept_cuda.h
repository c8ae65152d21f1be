#pragma once
// tree_accept.h on a GPU: the walks of a batch in one launch, one block a sequence. S = sequences,
// N = rows_per_sequence. Moves rows * 12 bytes a sequence; no workspace.
#include <cstdint>

#include "base/result.h"
#include "base/types.h"
#include "kernels/common/cuda/stream.h"
#include "kernels/round_state/round_state.h"

namespace copse::kernels::cuda {

struct TreeAcceptCall {
  int sequences = 0;
  int rows_per_sequence = 0;  // N, <= 1 + limits::tree_nodes

  const TokenId* row_tokens = nullptr;        // [S][N]
  const std::int32_t* row_parents = nullptr;  // [S][N]
  const std::int32_t* rows = nullptr;         // [S]; 0: nothing is kept
  const TokenId* targets = nullptr;           // [S][N] the target's token after each row
  const DeviceSlot* slots = nullptr;          // end tokens, ignore_end, remaining
  const std::int32_t* entry_slot = nullptr;   // [S] into slots; read where rows > 0

  std::int32_t* accepted = nullptr;     // [S][limits::draft_block + 1], walk_length of each are set
  std::int32_t* walk_length = nullptr;  // [S]
  std::int32_t* kept = nullptr;         // [S]
  std::int32_t* at_end = nullptr;       // [S]
};

Status tree_accept(const TreeAcceptCall& call, Stream stream);

}  // namespace copse::kernels::cuda
