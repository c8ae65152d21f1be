#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config/drafter_config.h"
#include "model/config/model_config.h"

namespace copse {
namespace {

using testing::ElementsAre;

// A small DeepSeek-V3 in the older spelling.
Json v3_config() {
  return Json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 8, "q_lora_rank": 48, "kv_lora_rank": 64, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 128,
    "moe_intermediate_size": 32, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
    "routed_scaling_factor": 2.5, "max_position_embeddings": 163840, "rms_norm_eps": 1e-5,
    "rope_theta": 10000, "eos_token_id": 1,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})");
}

Json drafter_config() {
  return Json::parse(R"({
    "model_type": "qwen3", "block_size": 8, "num_target_layers": 61, "hidden_size": 7168,
    "dflash_config": {"mask_token_id": 163838, "target_layer_ids": [1, 12, 24, 35, 47, 58]},
    "intermediate_size": 18432, "num_hidden_layers": 6, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "vocab_size": 163840,
    "max_position_embeddings": 262144, "rope_theta": 50000})");
}

TEST(ModelConfig, ReadsTheOlderSpelling) {
  const auto config = parse_model_config(v3_config());
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->vocabulary, 512);
  EXPECT_EQ(config->latent_width(), 128);
  EXPECT_EQ(config->groups, 4);
  EXPECT_EQ(config->scoring, Scoring::sigmoid);
  EXPECT_EQ(config->lora_rms_eps, 1e-6);
  EXPECT_EQ(config->rms_eps, 1e-5);
  EXPECT_TRUE(config->rope.yarn());
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 1.0);
  EXPECT_NEAR(config->softmax_scale(), 0.135234, 1e-6);  // DeepSeek-V3's
  EXPECT_FALSE(config->is_moe(0));
  EXPECT_TRUE(config->is_moe(1));
  EXPECT_THAT(config->end_tokens, ElementsAre(1));
}

TEST(ModelConfig, TheNewerSpellingSaysTheSame) {
  Json newer = v3_config();
  newer["rope_parameters"] = newer["rope_scaling"];
  newer["rope_parameters"]["rope_type"] = "yarn";
  newer["rope_parameters"]["rope_theta"] = newer["rope_theta"];
  for (const char* key : {"rope_scaling", "rope_theta", "scoring_func", "topk_method"}) {
    newer.erase(key);
  }
  const auto config = parse_model_config(newer);
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->rope, parse_model_config(v3_config())->rope);
  EXPECT_EQ(config->topk_method, TopkMethod::noaux_tc);
}

TEST(ModelConfig, PublishedSoftmaxScales) {
  struct Case {
    double theta, factor, mscale, expected;
  };
  for (const Case& c : {Case{10000, 40, 0.707, 0.114721}, Case{50000, 32, 1.0, 0.130861},
                        Case{50000, 64, 1.0, 0.144680}}) {
    Json json = v3_config();
    json["rope_theta"] = c.theta;
    json["rope_scaling"]["factor"] = c.factor;
    json["rope_scaling"]["mscale"] = c.mscale;
    json["rope_scaling"]["mscale_all_dim"] = c.mscale;
    EXPECT_NEAR(parse_model_config(json)->softmax_scale(), c.expected, 1e-6);
  }
  Json plain = v3_config();
  plain["rope_scaling"] = nullptr;
  EXPECT_NEAR(parse_model_config(plain)->softmax_scale(), 0.0721688, 1e-7);
}

TEST(ModelConfig, DeepseekV2Defaults) {
  Json json = v3_config();
  json["model_type"] = "deepseek_v2";
  json["q_lora_rank"] = nullptr;
  for (const char* key : {"scoring_func", "topk_method", "norm_topk_prob", "n_group", "topk_group",
                          "routed_scaling_factor"}) {
    json.erase(key);
  }
  const auto config = parse_model_config(json);
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->scoring, Scoring::softmax);
  EXPECT_EQ(config->topk_method, TopkMethod::greedy);
  EXPECT_FALSE(config->normalize_weights);
  EXPECT_EQ(config->routed_scale, 1.0);
  EXPECT_EQ(config->q_lora_rank, 0);
}

TEST(ModelConfig, TextConfigNestsTheLanguageModel) {
  Json text = v3_config();
  text["model_type"] = "kimi_k2";
  text["quantization_config"] = Json::parse(R"({"quant_method": "compressed-tensors",
    "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4,
    "group_size": 32, "symmetric": true, "strategy": "group", "type": "int"}}}})");
  const auto config = parse_model_config(Json{{"model_type", "kimi_k25"}, {"text_config", text}});
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->tensor_prefix, "language_model.");
  EXPECT_EQ(config->quantization.kind, Quantization::int4_group);
  EXPECT_EQ(config->quantization.group, 32);
}

TEST(ModelConfig, Fp8BlockQuantization) {
  Json json = v3_config();
  json["quantization_config"] =
      Json{{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(parse_model_config(json)->quantization.kind, Quantization::fp8_block);
  json["quantization_config"]["weight_block_size"] = {128, 64};
  EXPECT_EQ(parse_model_config(json).error().field, "quantization_config.weight_block_size");
  json["quantization_config"] = Json{{"quant_method", "awq"}};
  EXPECT_EQ(parse_model_config(json).error().code, ErrorCode::unsupported);
}

TEST(ModelConfig, GenerationConfigReplacesEndTokens) {
  ModelConfig config = *parse_model_config(v3_config());
  const auto more = with_generation_config(config, Json{{"eos_token_id", {1, 7}}});
  EXPECT_THAT(more->end_tokens, ElementsAre(1, 7));
  EXPECT_THAT(with_generation_config(config, Json::object())->end_tokens, ElementsAre(1));
  EXPECT_EQ(with_generation_config(config, Json{{"eos_token_id", 512}}).error().field,
            "generation_config.eos_token_id");
}

TEST(ModelConfig, EachErrorNamesItsKey) {
  struct Case {
    const char* key;
    Json value;
    ErrorCode code;
  };
  const std::vector<Case> cases = {
      {"vocab_size", nullptr, ErrorCode::not_found},
      {"vocab_size", 0, ErrorCode::invalid_argument},
      {"vocab_size", 1e18, ErrorCode::invalid_argument},
      {"vocab_size", "many", ErrorCode::malformed},
      {"hidden_size", -64, ErrorCode::invalid_argument},
      {"hidden_size", 64.5, ErrorCode::malformed},
      {"num_hidden_layers", 257, ErrorCode::invalid_argument},
      {"num_attention_heads", Json::array({8}), ErrorCode::malformed},
      {"qk_rope_head_dim", 63, ErrorCode::invalid_argument},
      {"num_experts_per_tok", 17, ErrorCode::invalid_argument},
      {"n_group", 3, ErrorCode::invalid_argument},
      {"n_group", 16, ErrorCode::invalid_argument},
      {"topk_group", nullptr, ErrorCode::not_found},
      {"topk_group", 5, ErrorCode::invalid_argument},
      {"rms_norm_eps", 0.0, ErrorCode::invalid_argument},
      {"rope_theta", 0.0, ErrorCode::invalid_argument},
      {"scoring_func", "tanh", ErrorCode::unsupported},
      {"topk_method", "random", ErrorCode::unsupported},
      {"hidden_act", "gelu", ErrorCode::unsupported},
      {"attention_bias", true, ErrorCode::unsupported},
      {"moe_layer_freq", 2, ErrorCode::unsupported},
      {"norm_topk_prob", 1, ErrorCode::malformed},
      {"model_type", "llama", ErrorCode::unsupported},
      {"eos_token_id", 512, ErrorCode::invalid_argument},
      {"rope_scaling", "yarn", ErrorCode::malformed},
  };
  for (const Case& c : cases) {
    Json json = v3_config();
    json[c.key] = c.value;
    const auto config = parse_model_config(json);
    ASSERT_FALSE(config.ok()) << c.key << " = " << c.value;
    EXPECT_EQ(config.error().field, c.key) << c.value;
    EXPECT_EQ(config.error().code, c.code) << c.key << " = " << c.value;
  }
  EXPECT_FALSE(parse_model_config(Json::array()).ok());
}

TEST(DrafterConfig, ReadsAPublishedKimiDrafter) {
  const auto config = parse_drafter_config(drafter_config());
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->block_size, 8);
  EXPECT_EQ(config->mask_token, 163838);
  EXPECT_THAT(config->target_layer_ids, ElementsAre(1, 12, 24, 35, 47, 58));
  EXPECT_EQ(config->feature_width(), 43008);
  EXPECT_FALSE(config->rope.interleaved);
}

TEST(DrafterConfig, FieldsHaveSeveralPlaces) {
  Json json = drafter_config();
  json["mask_token_id"] = json["dflash_config"]["mask_token_id"];
  json["aux_hidden_state_layer_ids"] = {2, 13, 25, 36, 48, 59};
  json["dflash_config"] = Json{{"block_size", 16}};
  json.erase("block_size");
  const auto config = parse_drafter_config(json);
  ASSERT_TRUE(config.ok()) << describe(config.error());
  EXPECT_EQ(config->block_size, 16);
  EXPECT_EQ(config->mask_token, 163838);
  EXPECT_THAT(config->target_layer_ids, ElementsAre(1, 12, 24, 35, 47, 58));
}

TEST(DrafterConfig, DefaultTargetLayersAreSpread) {
  Json json = drafter_config();
  json["dflash_config"].erase("target_layer_ids");
  EXPECT_THAT(parse_drafter_config(json)->target_layer_ids, ElementsAre(1, 12, 24, 35, 47, 58));
  json["num_target_layers"] = 36;
  json["num_hidden_layers"] = 5;
  EXPECT_THAT(parse_drafter_config(json)->target_layer_ids, ElementsAre(1, 9, 17, 25, 33));
}

TEST(DrafterConfig, YarnAmplitudeIsTheTrainedOneUnlessGiven) {
  Json json = drafter_config();
  json["rope_scaling"] = Json{{"rope_type", "yarn"},
                              {"factor", 64},
                              {"mscale", 1},
                              {"mscale_all_dim", 1},
                              {"original_max_position_embeddings", 4096}};
  EXPECT_NEAR(parse_drafter_config(json)->rope.attention_factor, 1.41589, 1e-5);
  json["rope_scaling"]["attention_factor"] = 1.0;
  EXPECT_EQ(parse_drafter_config(json)->rope.attention_factor, 1.0);
}

TEST(DrafterConfig, SlidingLayers) {
  Json json = drafter_config();
  json["num_hidden_layers"] = 2;
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(parse_drafter_config(json).error().field, "sliding_window");
  json["sliding_window"] = 2048;
  EXPECT_THAT(parse_drafter_config(json)->sliding_layers, ElementsAre(true, false));
  json.erase("layer_types");
  EXPECT_THAT(parse_drafter_config(json)->sliding_layers, ElementsAre(false, false));
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 1;
  EXPECT_THAT(parse_drafter_config(json)->sliding_layers, ElementsAre(false, true));
}

TEST(DrafterConfig, EachErrorNamesItsKey) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"block_size", 1},
                                                 {"block_size", 33},
                                                 {"num_key_value_heads", 7},
                                                 {"head_dim", 127},
                                                 {"num_target_layers", nullptr},
                                                 {"target_layer_ids", Json::array({1, 1})}}) {
    Json json = drafter_config();
    json[key] = value;
    if (std::string_view(key) == "target_layer_ids") json["dflash_config"].erase(key);
    EXPECT_EQ(parse_drafter_config(json).error().field, key) << value;
  }
}

TEST(EmbeddedPair, FitsTogether) {
  const auto target = read_model_config("models/sapling");
  const auto drafter = read_drafter_config("models/sapling-dflash");
  ASSERT_TRUE(target.ok() && drafter.ok());
  EXPECT_THAT(target->end_tokens, ElementsAre(1, 7));
  EXPECT_TRUE(check_drafter_fits(*drafter, *target).ok());
  ModelConfig other = *target;
  other.hidden = 128;
  EXPECT_EQ(check_drafter_fits(*drafter, other).error().field, "hidden_size");
}

}  // namespace
}  // namespace copse
