#include "model/score/scorer.h"

#include <gtest/gtest.h>

#include "model/weights/safetensors.h"
#include "model/weights/test_checkpoint.h"

namespace copse {
namespace {

Json score_json() {
  return Json::parse(R"({"input_ids": [1, 2, 3], "greedy_ids": [4], "tree": {"prefix_len": 2,
    "token_ids": [5, 6, 7], "parents": [-1, 0, -1], "depths": [0, 1, 0]}})");
}

TEST(ScoreInput, ReadsATextAndATree) {
  const auto input = parse_score_input(score_json(), 8);
  ASSERT_TRUE(input.ok()) << describe(input.error());
  EXPECT_EQ(input->input_ids, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(input->prefix_length, 2);
  EXPECT_EQ(input->tree_parents, (std::vector<std::int32_t>{-1, 0, -1}));
  Json text = score_json();
  text.erase("tree");
  EXPECT_TRUE(parse_score_input(text, 8)->tree_token_ids.empty());
}

TEST(ScoreInput, ErrorsNameTheKey) {
  const auto field = [](const char* pointer, const Json& value) {
    Json json = score_json();
    json[Json::json_pointer(pointer)] = value;
    const auto input = parse_score_input(json, 8);
    return input.ok() ? "no error" : input.error().field;
  };
  EXPECT_EQ(field("/input_ids", nullptr), "input_ids");
  EXPECT_EQ(field("/input_ids", Json::array({8})), "input_ids");
  EXPECT_EQ(field("/input_ids", Json::array({-1})), "input_ids");
  EXPECT_EQ(field("/tree/prefix_len", 4), "tree.prefix_len");
  EXPECT_EQ(field("/tree/token_ids", Json::array({1})), "tree.parents");
  EXPECT_EQ(field("/tree/parents", Json::array({-1, 1, 0})), "tree.parents");
  EXPECT_EQ(field("/tree/parents", Json::array({-1, -2, 0})), "tree.parents");
  EXPECT_EQ(field("/tree", Json::array()), "tree");
}

TEST(ScoreInput, EndsWithTheModelsPositions) {
  EXPECT_TRUE(parse_score_input(score_json(), 8, 4).ok()) << "prefix 2, depth 2";
  Json deep = score_json();
  deep["tree"]["parents"] = {-1, 0, 1};
  const auto tree = parse_score_input(deep, 8, 4);
  ASSERT_FALSE(tree.ok());
  EXPECT_EQ(tree.error().field, "tree");
  EXPECT_EQ(tree.error().message, "reaches 5 tokens; max_position_embeddings of the model is 4");
  const auto text = parse_score_input(score_json(), 8, 2);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().field, "input_ids");
  EXPECT_EQ(text.error().message, "reaches 3 tokens; max_position_embeddings of the model is 2");
}

TEST(ScoreInput, WhatIsNoObjectNamesTheDocument) {
  const auto input = parse_score_input(Json::array({1}), 8, 8, "text.json");
  ASSERT_FALSE(input.ok());
  EXPECT_EQ(input.error().field, "text.json");
  EXPECT_EQ(parse_score_input(Json::array({1}), 8).error().field, "input");
}

TEST(ScoreOutput, IsWrittenAsSafetensors) {
  const testing::TemporaryFolder folder;
  ScoreOutput output;
  output.vocabulary = 2;
  output.logits = {1, 2, 3, 4, 5, 6};
  output.tree_logits = {7, 8};
  const std::string path = folder.path() + "/out.safetensors";
  ASSERT_TRUE(write_score(path, output).ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << describe(file.error());
  const TensorInfo& logits = file->tensors().at("logits");
  EXPECT_EQ(logits.shape, (std::vector<std::int64_t>{3, 2}));
  std::vector<float> values(2);
  ASSERT_TRUE(file->read(logits, 16, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values, (std::vector<float>{5, 6}));
  EXPECT_EQ(file->tensors().at("tree_logits").shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(write_score(folder.path() + "/none/out", output).error().code, ErrorCode::io);
}

}  // namespace
}  // namespace copse
