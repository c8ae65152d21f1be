#pragma once
// Teacher-forced scoring: the target's logits at every token of a given text, and at every node of
// a given tree after a prefix of it. Behind `copse score` and the oracle tests.
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/deepseek/target_model.h"

namespace copse {

struct ScoreInput {
  std::vector<TokenId> input_ids;
  // Empty: no tree. Nodes stand after the first `prefix_length` input tokens; a node's position is
  // prefix_length + its depth; parents are node indices, -1 for a root.
  int prefix_length = 0;
  std::vector<TokenId> tree_token_ids;
  std::vector<std::int32_t> tree_parents;
};

// {"input_ids": [...], "tree": {"prefix_len", "token_ids", "parents"}}, the tree optional; other
// keys are passed over. Errors name the key, or `document` as a whole. `positions_max`: the model's
// max_position_embeddings, beyond which neither text nor tree may reach.
Result<ScoreInput> parse_score_input(const Json& json, int vocabulary,
                                     int positions_max = limits::sequence_tokens,
                                     const std::string& document = "input");

// Gathered: every rank has all of it. Row-major float32.
struct ScoreOutput {
  int vocabulary = 0;
  int hidden = 0;
  std::vector<float> logits;                // [tokens][vocabulary]
  std::vector<float> tree_logits;           // [nodes][vocabulary]
  std::vector<float> layer0_out;            // [tokens][hidden] residual stream after layer 0
  std::vector<float> hidden_last_layer_in;  // [tokens][hidden] residual stream into the last layer
};

class Scorer {
 public:
  // `group` and `threads` must outlive the scorer.
  static Result<std::unique_ptr<Scorer>> load(const std::string& folder, Collective& group,
                                              ThreadPool& threads,
                                              const OnWeightsRead& progress = {});

  // Same call on every rank. Errors: resource_exhausted for a tree beyond limits::tree_nodes + 1,
  // and the collective's.
  Result<ScoreOutput> score(const ScoreInput& input);

  TargetModel& model() { return *model_; }
  // Local logits [rows][local] of all ranks to [rows][vocabulary].
  Result<std::vector<float>> gather(std::span<const float> local);

 private:
  Scorer(std::unique_ptr<TargetModel> model, Collective& group)
      : model_(std::move(model)), group_(group) {}
  void add_features(std::span<const float> features, ScoreOutput& output) const;

  std::unique_ptr<TargetModel> model_;
  Collective& group_;
};

// As `logits` and, if there is a tree, `tree_logits`.
Status write_score(const std::string& path, const ScoreOutput& output);

}  // namespace copse
