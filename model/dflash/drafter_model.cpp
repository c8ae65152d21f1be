#include "model/dflash/drafter_model.h"

#include <algorithm>

#include "model/dflash/drafter_parts.h"

namespace copse {

DrafterWorkspace::DrafterWorkspace(const DrafterConfig& config, const DrafterShard& shard,
                                   const DrafterOptions& options, int vocabulary_local) {
  const int block_rows = options.sequences_max * config.block_size;
  const auto rows = static_cast<std::size_t>(std::max(block_rows, options.context_rows_max));
  const auto floats = [](std::size_t count, int width) {
    return std::vector<float>(count * static_cast<std::size_t>(width));
  };
  const int q_width = shard.heads.part.size() * config.head_dim;
  const int kv_width = shard.kv_heads.size() * config.head_dim;
  tokens.resize(rows);
  positions.resize(rows);
  features = floats(static_cast<std::size_t>(options.context_rows_max), shard.features.part.size());
  residual = floats(rows, config.hidden);
  normed = floats(rows, config.hidden);
  part = floats(rows, config.hidden);
  angles = floats(rows, config.head_dim);
  q = floats(rows, q_width);
  k = floats(rows, kv_width);
  v = floats(rows, kv_width);
  attended = floats(rows, q_width);
  gate = floats(rows, shard.inner.part.size());
  up = floats(rows, shard.inner.part.size());
  const auto drafted = static_cast<std::size_t>(options.sequences_max * (config.block_size - 1));
  logits = floats(drafted, vocabulary_local);
  contexts.reserve(static_cast<std::size_t>(options.sequences_max));
}

std::uint64_t DrafterWorkspace::bytes() const {
  std::uint64_t floats = tokens.size() + positions.size();
  for (const auto* buffer : {&features, &residual, &normed, &part, &angles, &q, &k, &v, &attended,
                             &gate, &up, &logits}) {
    floats += buffer->size();
  }
  return floats * sizeof(float) + contexts.capacity() * sizeof(contexts[0]);
}

DrafterModel::Parts::Parts(const DrafterConfig& model, const DrafterOptions& chosen,
                           const TokenTables& target_tables, Collective& ranks, ThreadPool& pool)
    : config(model),
      options(chosen),
      shard(shard_drafter(model, {ranks.rank(), ranks.world_size()})),
      tables(target_tables),
      group(ranks),
      threads(pool),
      rope(kernels::make_rope_table({model.head_dim, model.rope.theta, model.rope.factor,
                                     model.rope.original_positions, model.rope.beta_fast,
                                     model.rope.beta_slow, model.rope.attention_factor})),
      ws(model, shard, chosen, target_tables.shard().local) {}

DrafterModel::DrafterModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
DrafterModel::~DrafterModel() = default;

Result<std::unique_ptr<DrafterModel>> DrafterModel::load(const std::string& folder,
                                                         const DrafterConfig& config,
                                                         const DrafterOptions& options,
                                                         const TokenTables& tables,
                                                         Collective& group, ThreadPool& threads,
                                                         const OnWeightsRead& progress) {
  CHECK(options.sequences_max > 0 && options.context_rows_max > 0);
  COPSE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  const DrafterSpecs specs = drafter_specs(config);
  COPSE_RETURN_IF_ERROR(check_drafter_tensors(checkpoint, specs));
  auto parts = std::make_unique<Parts>(config, options, tables, group, threads);
  LoadPlan plan(checkpoint, {});
  plan_drafter_weights(plan, config, specs, parts->shard, parts->weights);
  COPSE_RETURN_IF_ERROR(plan.run(progress));
  parts->weight_bytes = plan.memory_bytes();
  parts->sharded_bytes = plan.sharded_bytes();
  return std::unique_ptr<DrafterModel>(new DrafterModel(std::move(parts)));
}

const DrafterConfig& DrafterModel::config() const {
  return parts_->config;
}
DraftCache::Shape DrafterModel::cache_shape(int pages) const {
  return {parts_->config.layers, parts_->shard.kv_heads.size(), parts_->config.head_dim, pages};
}
std::uint64_t DrafterModel::sharded_bytes() const {
  return parts_->sharded_bytes;
}
std::uint64_t DrafterModel::weight_bytes() const {
  return parts_->weight_bytes;
}
std::uint64_t DrafterModel::workspace_bytes() const {
  return parts_->ws.bytes();
}

}  // namespace copse
