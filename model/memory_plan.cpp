#include "model/memory_plan.h"

#include <algorithm>

#include "kernels/draft_attention/draft_attention.h"
#include "kernels/verify_attention/verify_attention.h"
#include "model/deepseek/target_parts.h"
#include "model/deepseek/target_specs.h"
#include "model/deepseek/target_weights.h"
#include "model/dflash/drafter_weights.h"

namespace copse {
namespace {

std::uint64_t wide(int count) {
  return static_cast<std::uint64_t>(count);
}
std::uint64_t padded(int count) {
  constexpr int kUnit = kernels::panel_outputs;
  return wide((count + kUnit - 1) / kUnit * kUnit);
}

// Of kernels/moe_experts.
std::uint64_t moe_workspace_values(const ModelConfig& config, const TargetShard& shard, int rows) {
  if (config.experts == 0) return 0;
  const std::uint64_t pairs = wide(rows) * wide(config.experts_per_token);
  return pairs * (2 + padded(shard.expert_inner.part.size())) +
         wide(rows) * padded(shard.shared_inner.part.size()) +
         4 * wide(rows) * padded(config.hidden) + wide(shard.experts.part.size()) + 2;
}

Status add_drafter(const std::string& folder, const InspectOptions& options, const Shard& shard,
                   const DrafterConfig& config, RankReport& report) {
  COPSE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  const DrafterSpecs specs = drafter_specs(config);
  COPSE_RETURN_IF_ERROR(check_drafter_tensors(checkpoint, specs));
  DrafterWeights weights;
  LoadPlan plan(checkpoint, {});
  plan_drafter_weights(plan, config, specs, shard_drafter(config, shard), weights);
  COPSE_RETURN_IF_ERROR(plan.status());
  report.drafter = plan.slices();
  report.file_bytes += plan.file_bytes();
  report.memory.drafter_weights = plan.memory_bytes();
  report.memory.draft_page = draft_page_bytes(config, shard);
  report.memory.drafter_workspace =
      drafter_workspace_bytes(config, shard, options.drafter, report.shard.vocabulary.local);
  return {};
}

RankReport target_report(const Checkpoint& checkpoint, const ModelConfig& config,
                         const TargetSpecs& specs, const InspectOptions& options,
                         const Shard& shard) {
  RankReport report;
  report.shard = shard_target(config, shard);
  TokenTables tables(config.vocabulary, report.shard.embedding_rows, report.shard.vocabulary);
  TargetWeights weights;
  LoadPlan plan(checkpoint, config.quantization);
  tables.plan(plan, specs.embedding, specs.head);
  plan_target_weights(plan, config, specs, report.shard, weights);
  report.target = plan.slices();
  report.file_bytes = plan.file_bytes();
  report.memory.target_weights = plan.memory_bytes();
  report.memory.target_workspace = target_workspace_bytes(config, report.shard, options.target);
  report.memory.latent_page = latent_page_bytes(config);
  report.memory.latent_scratch = latent_scratch_bytes(config, options.slots);
  return report;
}

}  // namespace

std::uint64_t target_workspace_bytes(const ModelConfig& config, const TargetShard& shard,
                                     const TargetOptions& options) {
  const std::uint64_t heads = wide(shard.heads.part.size());
  const std::uint64_t per_head = wide(config.head_dim()) + wide(config.latent_width()) +
                                 wide(config.kv_lora_rank) + wide(config.value_dim);
  const int world = shard.shard.world_size;
  const int shared =
      world > 1 ? (low_rank_panels(config) + world - 1) / world * kernels::panel_outputs : 0;
  const std::uint64_t per_row =
      wide(shared) * wide(world + 1) + wide(config.hidden) * (3 + options.feature_layers.size()) +
      wide(config.rope_dim) + wide(config.q_lora_rank) + heads * per_head +
      wide(config.latent_width()) + 2 * wide(shard.dense_inner.part.size()) + wide(config.experts) +
      2 * wide(config.experts_per_token);
  const std::uint64_t per_logit_row = wide(config.hidden) + wide(shard.vocabulary.local);
  const std::uint64_t floats = wide(options.rows_max) * per_row +
                               wide(options.logit_rows_max) * per_logit_row +
                               moe_workspace_values(config, shard, options.rows_max);
  return floats * sizeof(float) + wide(options.rows_max) * sizeof(kernels::VerifySequence);
}

std::uint64_t latent_page_bytes(const ModelConfig& config) {
  return wide(config.layers) * limits::page_tokens * wide(config.latent_width()) * sizeof(float);
}

std::uint64_t latent_scratch_bytes(const ModelConfig& config, int slots) {
  return wide(config.layers) * wide(slots) * (limits::tree_nodes + 1) *
         wide(config.latent_width()) * sizeof(float);
}

std::uint64_t draft_page_bytes(const DrafterConfig& config, const Shard& shard) {
  const int kv_heads = shard_drafter(config, shard).kv_heads.size();
  return 2 * wide(config.layers) * limits::page_tokens * wide(kv_heads) * wide(config.head_dim) *
         sizeof(float);
}

std::uint64_t drafter_workspace_bytes(const DrafterConfig& config, const Shard& shard,
                                      const DrafterOptions& options, int vocabulary_local) {
  const DrafterShard part = shard_drafter(config, shard);
  const int rows = std::max(options.sequences_max * config.block_size, options.context_rows_max);
  const std::uint64_t q_width = wide(part.heads.part.size()) * wide(config.head_dim);
  const std::uint64_t kv_width = wide(part.kv_heads.size()) * wide(config.head_dim);
  const std::uint64_t per_row = 2 + 3 * wide(config.hidden) + wide(config.head_dim) + 2 * q_width +
                                2 * kv_width + 2 * wide(part.inner.part.size());
  const std::uint64_t drafted = wide(options.sequences_max) * wide(config.block_size - 1);
  const std::uint64_t floats = wide(rows) * per_row +
                               wide(options.context_rows_max) * wide(part.features.part.size()) +
                               drafted * wide(vocabulary_local);
  return floats * sizeof(float) + wide(options.sequences_max) * sizeof(kernels::DraftContext);
}

Result<CheckpointReport> inspect_checkpoint(const std::string& target, const std::string& drafter,
                                            const InspectOptions& options) {
  CHECK(options.tp >= 1 && options.tp <= limits::world_size);
  CheckpointReport report;
  COPSE_TRY(report.config, read_model_config(target));
  COPSE_TRY(const Checkpoint checkpoint, Checkpoint::open(target));
  const TargetSpecs specs = target_specs(report.config);
  COPSE_RETURN_IF_ERROR(check_target_tensors(checkpoint, report.config, specs));
  if (!drafter.empty()) {
    COPSE_TRY(report.drafter, read_drafter_config(drafter));
    COPSE_RETURN_IF_ERROR(check_drafter_fits(*report.drafter, report.config));
  }
  for (int rank = 0; rank < options.tp; ++rank) {
    const Shard shard = {rank, options.tp};
    report.ranks.push_back(target_report(checkpoint, report.config, specs, options, shard));
    if (report.drafter) {
      COPSE_RETURN_IF_ERROR(
          add_drafter(drafter, options, shard, *report.drafter, report.ranks.back()));
    }
  }
  return report;
}

}  // namespace copse
