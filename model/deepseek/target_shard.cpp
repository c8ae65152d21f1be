#include "model/deepseek/target_shard.h"

namespace copse {
namespace {

// Columns that the codec of routed experts cannot be cut inside of, without sharing a scale.
int expert_unit(const QuantizationConfig& quantization) {
  switch (quantization.kind) {
    case Quantization::none:
      return 1;
    case Quantization::fp8_block:
      return quantization.block;
    case Quantization::int4_group:
      return quantization.group;
  }
  return 1;
}

void shard_experts(const ModelConfig& config, TargetShard& result) {
  const Shard& shard = result.shard;
  const int unit = expert_unit(config.quantization);
  result.whole_experts = config.expert_inner % (limits::reduction_leaves * unit) != 0;
  const SplitSum all_experts = {{0, config.experts}, 1};
  const SplitSum all_inner = {{0, config.expert_inner}, 1};
  result.experts = result.whole_experts ? split_sum(config.experts, shard) : all_experts;
  result.expert_inner = result.whole_experts ? all_inner : split_sum(config.expert_inner, shard);
  result.shared_inner = split_sum(config.shared_inner(), shard);
  // Routed and shared parts are added leaf by leaf, so both must have them.
  const int routed = result.whole_experts ? result.experts.leaves : result.expert_inner.leaves;
  const bool both = config.shared_experts == 0 || result.shared_inner.leaves == routed;
  result.expert_leaves = both ? routed : 1;
}

}  // namespace

TargetShard shard_target(const ModelConfig& config, const Shard& shard) {
  constexpr std::uint64_t kReplicatedBytes = 64u << 20;
  TargetShard result;
  result.shard = shard;
  result.heads = split_heads(config.heads, config.value_dim, shard);
  result.dense_inner = split_sum(config.dense_inner, shard);
  if (config.experts > 0) shard_experts(config, result);
  result.vocabulary = vocabulary_shard(config.vocabulary, shard);
  const std::uint64_t table_bytes =
      2 * static_cast<std::uint64_t>(config.vocabulary) * static_cast<std::uint64_t>(config.hidden);
  const VocabularyShard& own = result.vocabulary;
  result.embedding_rows = table_bytes <= kReplicatedBytes ? Range{0, config.vocabulary}
                                                          : Range{own.begin, own.begin + own.rows};
  return result;
}

}  // namespace copse
