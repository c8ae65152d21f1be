// Every checkpoint folder against Hugging Face's numbers, at every number of ranks. Folders are
// found when the test runs, so it works on ones that it has never seen.
#include <gtest/gtest.h>

#include "kernels/common/thread_pool.h"
#include "tests/oracle/oracle.h"

namespace copse::oracle {
namespace {

constexpr float kTolerance = 2e-4f;

// The tensors of one folder, on one rank.
bool tensors_match(const std::string& folder, const Json& golden, Scorer& scorer) {
  const auto input = parse_score_input(golden, scorer.model().config().vocabulary);
  if (!input.ok()) return complain(folder + ": " + describe(input.error()));
  const auto output = scorer.score(*input);
  if (!output.ok()) return complain(folder + ": " + describe(output.error()));
  const auto matches = [&](const char* name, const std::vector<float>& values) {
    return close(folder + " " + name, values, golden_tensor(folder + "/golden.safetensors", name),
                 kTolerance);
  };
  bool good = matches("golden.layer0_out", output->layer0_out);
  good = matches("golden.hidden_last_layer_in", output->hidden_last_layer_in) && good;
  good = matches("golden.logits", output->logits) && good;
  return matches("golden.tree_logits", output->tree_logits) && good;
}

bool greedy_matches(const std::string& folder, const Json& golden, Scorer& scorer) {
  const std::vector<TokenId> input = token_ids(golden.at("input_ids"));
  const std::vector<TokenId> expected = token_ids(golden.at("greedy_ids"));
  const auto prompt = std::span(input).first(golden.at("greedy_prompt_len").get<std::size_t>());
  const auto tokens = greedy(scorer, prompt, static_cast<int>(expected.size()));
  if (!tokens.ok()) return complain(folder + ": " + describe(tokens.error()));
  return equal(folder + " greedy_ids", *tokens, expected);
}

bool folder_matches(const std::string& folder, Collective& group) {
  ThreadPool threads(1);
  const auto scorer = Scorer::load(folder, group, threads);
  if (!scorer.ok()) return complain(folder + ": " + describe(scorer.error()));
  const Json golden = golden_json(folder + "/golden.json");
  const bool tensors = tensors_match(folder, golden, **scorer);
  return greedy_matches(folder, golden, **scorer) && tensors;
}

class Checkpoints : public testing::TestWithParam<int> {};

TEST_P(Checkpoints, EveryFolderMatches) {
  const std::vector<std::string> folders = checkpoint_folders();
  ASSERT_FALSE(folders.empty()) << "no checkpoint folder was found";
  for (const std::string& folder : folders) {
    EXPECT_TRUE(
        run_ranks(GetParam(), [&](Collective& group) { return folder_matches(folder, group); }))
        << folder << " at tp " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Tp, Checkpoints, testing::Values(1, 2, 4, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace copse::oracle
