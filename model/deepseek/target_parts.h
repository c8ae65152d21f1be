#pragma once
// The inside of a TargetModel: what forward.cpp, attention.cpp and mlp.cpp share.
#include <vector>

#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/rope/rope.h"
#include "kernels/verify_attention/verify_attention.h"
#include "model/deepseek/target_model.h"
#include "model/deepseek/target_weights.h"
#include "transport/collective/collective.h"

namespace copse {

// Every buffer of a forward pass, for the largest batch. R = rows_max, h = heads of this rank.
struct TargetWorkspace {
  TargetWorkspace(const ModelConfig& config, const TargetShard& shard,
                  const TargetOptions& options);
  std::uint64_t bytes() const;

  std::vector<float> residual;     // [R][hidden]
  std::vector<float> normed;       // [R][hidden]
  std::vector<float> part;         // [R][hidden] this rank's part of a split sum, then the sum
  std::vector<float> angles;       // [R][rope]
  std::vector<float> q_lora;       // [R][q_lora_rank]
  std::vector<float> q;            // [R][h][nope + rope]
  std::vector<float> q_absorbed;   // [R][h][latent + rope]
  std::vector<float> latent;       // [R][latent + rope]
  std::vector<float> shared_mine;  // this rank's outputs of q_a and kv_a, where they are shared out
  std::vector<float> shared_all;   // [ranks] of those
  std::vector<float> attended;     // [R][h][latent]
  std::vector<float> values;       // [R][h][value]
  std::vector<float> gate;         // [R][dense inner of this rank]
  std::vector<float> up;           // [R][dense inner of this rank]
  std::vector<float> scores;       // [R][experts] router logits
  std::vector<std::int32_t> expert_ids;            // [R][experts_per_token]
  std::vector<float> expert_weights;               // [R][experts_per_token]
  std::vector<float> features;                     // [R][feature_layers * hidden]
  std::vector<float> head_rows;                    // [logit rows][hidden]
  std::vector<float> logits;                       // [logit rows][vocabulary_local]
  std::vector<kernels::VerifySequence> sequences;  // [<= R]
  kernels::MoeWorkspace moe;
};

// Panels of 16 outputs of q_a_proj and kv_a_proj together.
int low_rank_panels(const ModelConfig& config);

struct TargetModel::Parts {
  Parts(const ModelConfig& model, const TargetOptions& chosen, const Shard& rank, Collective& ranks,
        ThreadPool& pool);

  // low_rank.cpp: ws.q_lora [R][q_lora_rank] and ws.latent [R][latent + rope] of ws.normed, before
  // their norms. An error is the collective's.
  Status low_rank(const AttentionWeights& w, int rows);
  // attention.cpp: ws.part = this rank's part of o_proj(attention(ws.normed)), all rows.
  void attention(int layer, const ForwardBatch& batch, LatentCache& cache);
  void latent_rows(const AttentionWeights& w, int rows);       // ws.latent, normed and rotated
  void absorbed_queries(const AttentionWeights& w, int rows);  // ws.q_absorbed
  void rotate(const kernels::RopeHeads& heads);
  float lora_eps() const { return static_cast<float>(config.lora_rms_eps); }
  // mlp.cpp: ws.part = this rank's part of the layer's MLP or experts of ws.normed.
  void mlp(int layer, int rows);
  // ws.part summed over ranks, added to ws.residual.
  Status add_parts(int rows);
  void capture(int layer, int rows);

  ModelConfig config;
  TargetOptions options;
  TargetShard shard;
  Collective& group;
  ThreadPool& threads;
  TokenTables tables;
  TargetWeights weights;
  kernels::RopeTable rope;
  kernels::RouteSpec route;
  TargetWorkspace ws;
  std::uint64_t weight_bytes = 0;
  std::uint64_t sharded_bytes = 0;
};

}  // namespace copse
