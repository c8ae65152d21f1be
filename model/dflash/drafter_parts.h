#pragma once
// The inside of a DrafterModel: what drafter_model.cpp and draft_forward.cpp share.
#include <vector>

#include "kernels/draft_attention/draft_attention.h"
#include "kernels/rope/rope.h"
#include "model/dflash/drafter_model.h"
#include "model/dflash/drafter_weights.h"
#include "model/token_tables.h"
#include "transport/collective/collective.h"

namespace copse {

// R = rows of the largest call: sequences_max blocks or context_rows_max tokens.
// h, g = query and key/value heads of this rank.
struct DrafterWorkspace {
  DrafterWorkspace(const DrafterConfig& config, const DrafterShard& shard,
                   const DrafterOptions& options, int vocabulary_local);
  std::uint64_t bytes() const;

  std::vector<TokenId> tokens;          // [R]
  std::vector<std::int32_t> positions;  // [R]
  std::vector<float> features;          // [R][features of this rank]
  std::vector<float> residual;          // [R][hidden]; the projected context of append_context
  std::vector<float> normed;            // [R][hidden]
  std::vector<float> part;              // [R][hidden]
  std::vector<float> angles;            // [R][head_dim]
  std::vector<float> q;                 // [R][h][head_dim]
  std::vector<float> k;                 // [R][g][head_dim]
  std::vector<float> v;                 // [R][g][head_dim]
  std::vector<float> attended;          // [R][h][head_dim]
  std::vector<float> gate;              // [R][inner of this rank]
  std::vector<float> up;                // [R][inner of this rank]
  std::vector<float> logits;            // [sequences * (block - 1)][vocabulary_local]
  std::vector<kernels::DraftContext> contexts;  // [sequences]
};

struct DrafterModel::Parts {
  Parts(const DrafterConfig& model, const DrafterOptions& chosen, const TokenTables& target_tables,
        Collective& ranks, ThreadPool& pool);

  // ws.k, ws.v = keys (normed, rotated by ws.angles) and values of x [rows][hidden].
  void keys_and_values(const DrafterLayerWeights& w, kernels::ConstMatrix x);
  // ws.part = this rank's part of the block's attention over context and block.
  void attention(int layer, const DrafterLayerWeights& w, const DraftCache& cache, int rows);
  // ws.part = this rank's part of the MLP of ws.normed.
  void mlp(const DrafterLayerWeights& w, int rows);
  // ws.part summed over ranks, added to ws.residual.
  Status add_parts(int rows);

  DrafterConfig config;
  DrafterOptions options;
  DrafterShard shard;
  const TokenTables& tables;
  Collective& group;
  ThreadPool& threads;
  DrafterWeights weights;
  kernels::RopeTable rope;
  DrafterWorkspace ws;
  std::uint64_t weight_bytes = 0;
  std::uint64_t sharded_bytes = 0;
};

}  // namespace copse
