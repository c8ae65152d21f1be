#include "model/deepseek/target_model.h"

#include "model/deepseek/target_parts.h"
#include "model/deepseek/target_route.h"

namespace copse {
TargetWorkspace::TargetWorkspace(const ModelConfig& config, const TargetShard& shard,
                                 const TargetOptions& options) {
  const auto rows = static_cast<std::size_t>(options.rows_max);
  const auto floats = [](std::size_t count, int width) {
    return std::vector<float>(count * static_cast<std::size_t>(width));
  };
  const int heads = shard.heads.part.size();
  residual = floats(rows, config.hidden);
  normed = floats(rows, config.hidden);
  part = floats(rows, config.hidden);
  angles = floats(rows, config.rope_dim);
  q_lora = floats(rows, config.q_lora_rank);
  q = floats(rows, heads * config.head_dim());
  q_absorbed = floats(rows, heads * config.latent_width());
  latent = floats(rows, config.latent_width());
  const int world = shard.shard.world_size;
  if (world > 1) {
    const int width = (low_rank_panels(config) + world - 1) / world * kernels::panel_outputs;
    shared_mine = floats(rows, width);
    shared_all = floats(rows, width * world);
  }
  attended = floats(rows, heads * config.kv_lora_rank);
  values = floats(rows, heads * config.value_dim);
  gate = floats(rows, shard.dense_inner.part.size());
  up = floats(rows, shard.dense_inner.part.size());
  scores = floats(rows, config.experts);
  expert_ids.resize(rows * static_cast<std::size_t>(config.experts_per_token));
  expert_weights.resize(expert_ids.size());
  features = floats(rows, static_cast<int>(options.feature_layers.size()) * config.hidden);
  const auto logit_rows = static_cast<std::size_t>(options.logit_rows_max);
  head_rows = floats(logit_rows, config.hidden);
  logits = floats(logit_rows, shard.vocabulary.local);
  sequences.reserve(rows);
  if (config.experts > 0) {
    moe = kernels::MoeWorkspace(options.rows_max, config.experts_per_token,
                                shard.experts.part.size(), shard.expert_inner.part.size(),
                                shard.shared_inner.part.size(), config.hidden);
  }
}

std::uint64_t TargetWorkspace::bytes() const {
  std::uint64_t floats = expert_ids.size();
  for (const auto* buffer : {&residual, &normed, &part, &angles, &q_lora, &q, &q_absorbed, &latent,
                             &shared_mine, &shared_all, &attended, &values, &gate, &up, &scores,
                             &expert_weights, &features, &head_rows, &logits}) {
    floats += buffer->size();
  }
  return floats * sizeof(float) + sequences.capacity() * sizeof(sequences[0]) + moe.bytes();
}

TargetModel::Parts::Parts(const ModelConfig& model, const TargetOptions& chosen, const Shard& rank,
                          Collective& ranks, ThreadPool& pool)
    : config(model),
      options(chosen),
      shard(shard_target(model, rank)),
      group(ranks),
      threads(pool),
      tables(model.vocabulary, shard.embedding_rows, shard.vocabulary),
      rope(kernels::make_rope_table(rope_spec(model))),
      route(route_spec(model)),
      ws(model, shard, chosen) {}

TargetModel::TargetModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TargetModel::~TargetModel() = default;

Result<std::unique_ptr<TargetModel>> TargetModel::load(const std::string& folder,
                                                       const ModelConfig& config,
                                                       const TargetOptions& options,
                                                       Collective& group, ThreadPool& threads,
                                                       const OnWeightsRead& progress) {
  CHECK(options.rows_max > 0 && options.logit_rows_max >= 0);
  COPSE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  const TargetSpecs specs = target_specs(config);
  COPSE_RETURN_IF_ERROR(check_target_tensors(checkpoint, config, specs));
  auto parts = std::make_unique<Parts>(config, options, Shard{group.rank(), group.world_size()},
                                       group, threads);
  LoadPlan plan(checkpoint, config.quantization);
  parts->tables.plan(plan, specs.embedding, specs.head);
  plan_target_weights(plan, config, specs, parts->shard, parts->weights);
  COPSE_RETURN_IF_ERROR(plan.run(progress));
  parts->weight_bytes = plan.memory_bytes();
  parts->sharded_bytes = plan.sharded_bytes();
  return std::unique_ptr<TargetModel>(new TargetModel(std::move(parts)));
}

const ModelConfig& TargetModel::config() const {
  return parts_->config;
}
const VocabularyShard& TargetModel::vocabulary() const {
  return parts_->shard.vocabulary;
}
const TokenTables& TargetModel::tables() const {
  return parts_->tables;
}
int TargetModel::rows_max() const {
  return parts_->options.rows_max;
}
int TargetModel::feature_width() const {
  return static_cast<int>(parts_->options.feature_layers.size()) * parts_->config.hidden;
}
std::uint64_t TargetModel::sharded_bytes() const {
  return parts_->sharded_bytes;
}
std::uint64_t TargetModel::weight_bytes() const {
  return parts_->weight_bytes;
}
std::uint64_t TargetModel::workspace_bytes() const {
  return parts_->ws.bytes();
}

}  // namespace copse
