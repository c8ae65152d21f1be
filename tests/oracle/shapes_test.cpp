// Shapes that do not divide: heads, vocabulary, inner dimensions and experts against the number of
// ranks, codecs against slices. One rank's answer is the right one for any number of them; where
// every dimension has its eight leaves, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/common/thread_pool.h"
#include "model/weights/test_checkpoint.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/random_checkpoint.h"

namespace copse::oracle {
namespace {

struct ShapeCase {
  const char* name;
  const char* changes;  // keys of small_config
  bool same_bits;       // at every number of ranks
};

const ShapeCase kCases[] = {
    {"divides", R"({"vocab_size": 64})", true},
    {"vocabulary of 77 tokens", R"({})", true},
    {"fewer tokens than ranks", R"({"vocab_size": 5})", true},
    {"six heads", R"({"num_attention_heads": 6})", false},
    {"two heads", R"({"num_attention_heads": 2})", false},
    {"inner dimensions of no eighth", R"({"moe_intermediate_size": 12, "intermediate_size": 21,
      "n_routed_experts": 6})",
     false},
    {"four experts, odd inner", R"({"moe_intermediate_size": 7, "n_routed_experts": 4})", false},
    {"whole experts and shared by inner", R"({"moe_intermediate_size": 12,
      "n_shared_experts": 2})",
     true},
    {"no shared expert, whole experts", R"({"moe_intermediate_size": 9, "n_shared_experts": 0})",
     true},
    {"one layer", R"({"num_hidden_layers": 1})", true},
    {"no experts", R"({"n_routed_experts": null})", true},
    {"tied embeddings, half-split rope", R"({"tie_word_embeddings": true,
      "rope_interleave": false})",
     true},
    {"groups", R"({"n_group": 4, "topk_group": 2})", true},
    {"v2 groups", R"({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy",
      "n_group": 4, "topk_group": 2, "q_lora_rank": null})",
     true},
    {"int4 by inner", R"({"moe_intermediate_size": 256, "hidden_size": 32,
      "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0":
      {"weights": {"num_bits": 4, "group_size": 32}}}}})",
     true},
    {"int4 by whole experts", R"({"moe_intermediate_size": 176, "hidden_size": 32,
      "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0":
      {"weights": {"num_bits": 4, "group_size": 32}}}}})",
     true},
    {"fp8 of ragged blocks", R"({"quantization_config": {"quant_method": "fp8",
      "weight_block_size": [16, 16]}})",
     true},
};

// Logits of a text and a small tree as rank 0 has them.
bool score(const std::string& folder, const ScoreInput& input, int world_size,
           std::span<float> into) {
  return run_ranks(world_size, [&](Collective& group) {
    ThreadPool threads(1);
    const auto scorer = Scorer::load(folder, group, threads);
    if (!scorer.ok()) return complain(describe(scorer.error()));
    const auto output = (*scorer)->score(input);
    if (!output.ok()) return complain(describe(output.error()));
    if (output->logits.size() + output->tree_logits.size() != into.size()) {
      return complain("another number of logits");
    }
    if (group.rank() != 0) return true;
    std::copy(output->tree_logits.begin(), output->tree_logits.end(),
              std::copy(output->logits.begin(), output->logits.end(), into.begin()));
    return true;
  });
}

TEST(Shapes, AnyNumberOfRanksAnswersAlike) {
  for (const ShapeCase& c : kCases) {
    SCOPED_TRACE(c.name);
    Json config = small_config();
    config.update(Json::parse(c.changes));
    const testing::TemporaryFolder folder;
    write_random_checkpoint(folder.path(), config);
    const int vocabulary = config["vocab_size"].get<int>();
    ScoreInput input;
    for (int i = 0; i < 70; ++i) input.input_ids.push_back(i * 31 % vocabulary);
    input.prefix_length = 66;
    input.tree_token_ids = {1, 2, 3, 4, 0};
    input.tree_parents = {-1, 0, 0, -1, 2};
    SharedFloats one(75 * static_cast<std::size_t>(vocabulary));
    ASSERT_TRUE(score(folder.path(), input, 1, one.values()));
    for (const int world_size : {2, 4, 8}) {
      SharedFloats many(one.values().size());
      ASSERT_TRUE(score(folder.path(), input, world_size, many.values()));
      EXPECT_TRUE(close("tp " + std::to_string(world_size), many.values(), one.values(), 1e-4f));
      const bool same =
          std::memcmp(one.values().data(), many.values().data(), one.values().size_bytes()) == 0;
      EXPECT_TRUE(same || !c.same_bits) << "tp " << world_size;
    }
  }
}

}  // namespace
}  // namespace copse::oracle
