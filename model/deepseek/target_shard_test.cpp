#include "model/deepseek/target_shard.h"

#include <gtest/gtest.h>

#include "model/deepseek/target_specs.h"
#include "model/dflash/drafter_weights.h"
#include "model/memory_plan.h"
#include "model/weights/test_checkpoint.h"

namespace copse {
namespace {

ModelConfig kimi() {
  ModelConfig config;
  config.vocabulary = 163840;
  config.hidden = 7168;
  config.layers = 61;
  config.heads = 64;
  config.kv_lora_rank = 512;
  config.rope_dim = 64;
  config.value_dim = 128;
  config.dense_layers = 1;
  config.dense_inner = 18432;
  config.expert_inner = 2048;
  config.experts = 384;
  config.shared_experts = 1;
  config.quantization.kind = Quantization::int4_group;
  return config;
}

TEST(TargetShard, KimiOverEightRanks) {
  const TargetShard shard = shard_target(kimi(), {3, 8});
  EXPECT_EQ(shard.heads, (SplitSum{{24, 32}, 1}));
  EXPECT_EQ(shard.dense_inner, (SplitSum{{6912, 9216}, 1}));
  EXPECT_FALSE(shard.whole_experts);  // 256 columns are whole groups of 32
  EXPECT_EQ(shard.expert_inner, (SplitSum{{768, 1024}, 1}));
  EXPECT_EQ(shard.experts.part, (Range{0, 384}));
  EXPECT_EQ(shard.expert_leaves, 1);
  EXPECT_EQ(shard.vocabulary.begin, 3 * 20480);
  EXPECT_EQ(shard.embedding_rows, (Range{3 * 20480, 4 * 20480}));  // 2.3 GB: sharded
}

TEST(TargetShard, LeavesAreEightInAll) {
  for (const int world : {1, 2, 4, 8}) {
    const TargetShard shard = shard_target(kimi(), {world - 1, world});
    EXPECT_EQ(shard.heads.leaves, 8 / world);
    EXPECT_EQ(shard.expert_leaves, 8 / world);
    EXPECT_EQ(shard.dense_inner.leaves, 8 / world);
  }
}

TEST(TargetShard, QuantizedExpertsOf1408AreDealtOutWhole) {
  ModelConfig config = kimi();
  config.expert_inner = 1408;  // an eighth is 176: no multiple of 32
  config.experts = 64;
  config.shared_experts = 2;
  for (const int world : {1, 2, 4, 8}) {
    const TargetShard shard = shard_target(config, {world - 1, world});
    EXPECT_TRUE(shard.whole_experts) << world;
    EXPECT_EQ(shard.experts.part.size(), 64 / world);
    EXPECT_EQ(shard.expert_inner.part, (Range{0, 1408}));
    EXPECT_EQ(shard.shared_inner.part.size(), 2816 / world);
    EXPECT_EQ(shard.expert_leaves, 8 / world);
  }
  config.quantization.kind = Quantization::fp8_block;
  EXPECT_TRUE(shard_target(config, {0, 8}).whole_experts);
  config.quantization.kind = Quantization::none;
  EXPECT_FALSE(shard_target(config, {0, 8}).whole_experts);
}

TEST(TargetShard, PartsCoverWhatDoesNotDivide) {
  ModelConfig config = kimi();
  config.heads = 6;
  config.vocabulary = 77;
  int heads = 0, tokens = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const TargetShard shard = shard_target(config, {rank, 8});
    EXPECT_EQ(shard.heads.part.begin, heads);
    EXPECT_EQ(shard.vocabulary.begin, tokens);
    EXPECT_EQ(shard.vocabulary.local, 10);
    EXPECT_EQ(shard.embedding_rows, (Range{0, 77}));
    heads = shard.heads.part.end;
    tokens += shard.vocabulary.rows;
  }
  EXPECT_EQ(heads, 6);
  EXPECT_EQ(tokens, 77);
}

TEST(DrafterShard, KeyValueHeadsAreReplicatedWhereFewer) {
  DrafterConfig config;
  config.hidden = 256;
  config.inner = 768;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_dim = 32;
  config.target_layer_ids = {1, 2, 3};
  for (int rank = 0; rank < 8; ++rank) {
    const DrafterShard shard = shard_drafter(config, {rank, 8});
    EXPECT_EQ(shard.heads.part, (Range{rank, rank + 1}));
    EXPECT_EQ(shard.kv_heads, (Range{rank / 2, rank / 2 + 1}));
  }
  config.kv_heads = 8;
  EXPECT_EQ(shard_drafter(config, {1, 2}).kv_heads, (Range{4, 8}));
  config.heads = 6;
  config.kv_heads = 3;  // no even split: whole groups
  EXPECT_EQ(shard_drafter(config, {0, 2}).heads.part, (Range{0, 2}));
  EXPECT_EQ(shard_drafter(config, {1, 2}).heads.part, (Range{2, 6}));
}

// A target of one dense layer, as a file whose tensors can be spoilt.
class TinyTarget : public ::testing::Test {
 protected:
  TinyTarget() {
    config_.vocabulary = 4;
    config_.hidden = 4;
    config_.layers = config_.dense_layers = 1;
    config_.heads = 1;
    config_.kv_lora_rank = 2;
    config_.nope_dim = config_.rope_dim = config_.value_dim = 2;
    config_.dense_inner = 4;
  }
  // Every tensor but `without`, and `extra`.
  Status check(const std::string& without, const std::string& extra) {
    const TargetSpecs specs = target_specs(config_);
    testing::CheckpointWriter writer;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      std::int64_t count = 1;
      for (const std::int64_t dimension : shape) count *= dimension;
      if (name != without) {
        writer.add(name, "BF16", std::move(shape),
                   std::vector<Bf16>(static_cast<std::size_t>(count)));
      }
    };
    const auto linear = [&](const LinearSpec& spec) {
      add(spec.name + ".weight", {spec.rows, spec.columns});
    };
    const LayerSpecs& layer = specs.layers.at(0);
    for (const LinearSpec* spec : {&specs.embedding, &specs.head, &layer.attention.q,
                                   &layer.attention.kv_a, &layer.attention.kv_b, &layer.attention.o,
                                   &layer.dense->gate, &layer.dense->up, &layer.dense->down}) {
      linear(*spec);
    }
    for (const VectorSpec* spec :
         {&specs.norm, &layer.input_norm, &layer.post_attention_norm, &layer.attention.kv_a_norm}) {
      add(spec->name, {spec->size});
    }
    if (!extra.empty()) add(extra, {1});
    const testing::TemporaryFolder folder;
    folder.write("model.safetensors", writer.bytes());
    const auto checkpoint = Checkpoint::open(folder.path());
    CHECK(checkpoint.ok());
    return check_target_tensors(*checkpoint, config_, specs);
  }
  ModelConfig config_;
};

TEST_F(TinyTarget, NothingMayBeMissing) {
  EXPECT_TRUE(check("", "").ok());
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.0.self_attn.kv_b_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
    const Status status = check(name, "");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, name);
    EXPECT_EQ(status.error().code, ErrorCode::not_found);
  }
}

TEST_F(TinyTarget, ExtrasOfKnownKindsAreSkippedAndOthersRefused) {
  for (const char* name :
       {"model.layers.1.embed_tokens.weight", "vision_tower.patch.weight", "mm_projector.0.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq"}) {
    EXPECT_TRUE(check("", name).ok()) << name;
  }
  for (const char* name : {"model.layers.0.mlp.experts.0.up_proj.weight", "model.layers.1",
                           "model.layers.0.self_attn.q_a_proj.weight", "surprise"}) {
    const Status status = check("", name);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().field, name);
    EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  }
}

TEST(Inspect, RanksHoldAboutAnEighthOfWhatIsSharded) {
  InspectOptions options;
  options.tp = 8;
  options.target = {1024, 1024, {1, 2, 3}};
  options.drafter = {32, 256};
  options.slots = 32;
  const auto report = inspect_checkpoint("models/sapling", "models/sapling-dflash", options);
  ASSERT_TRUE(report.ok()) << describe(report.error());
  ASSERT_EQ(report->ranks.size(), 8u);
  options.tp = 1;
  const auto whole = inspect_checkpoint("models/sapling", "models/sapling-dflash", options);
  ASSERT_TRUE(whole.ok());
  const std::uint64_t all = whole->ranks[0].memory.target_weights;
  EXPECT_NEAR(static_cast<double>(all), 2.0 * 14637248, 2e5);  // bf16
  // Replicated: the embedding (2 MiB), q_a, kv_a, the router, norms.
  const std::uint64_t replicated = 2 * (4096 * 256 + 5 * (192 + 576) * 256 + 4 * 16 * 256);
  for (const RankReport& rank : report->ranks) {
    const std::uint64_t sharded = rank.memory.target_weights - replicated;
    EXPECT_NEAR(static_cast<double>(sharded), static_cast<double>(all - replicated) / 8, 1e5);
    EXPECT_EQ(rank.memory.latent_page, 5u * 64 * 576 * 4);
    EXPECT_EQ(rank.memory.draft_page, 2u * 3 * 64 * 32 * 4);  // one key/value head each
  }
  EXPECT_FALSE(inspect_checkpoint("models/sapling-dflash", "", options).ok());
}

}  // namespace
}  // namespace copse
