#include "model/score/scorer.h"

#include <algorithm>

#include "model/config/config_reader.h"
#include "model/score/sequence_runner.h"
#include "model/weights/safetensors_writer.h"
#include "transport/collective/collective.h"

namespace copse {
namespace {

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Residual stream after layer 0 and before the last layer; -1 is the embedding's output.
std::vector<int> state_layers(int layers) {
  std::vector<int> wanted = {0, layers - 2};
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return wanted;
}

std::string beyond_positions(int tokens, int positions_max) {
  return "reaches " + std::to_string(tokens) + " tokens; max_position_embeddings of the model is " +
         std::to_string(positions_max);
}

// Positions that prefix and tree take; parents come before their children.
int tree_positions(const ScoreInput& input) {
  int deepest = 0;
  std::vector<int> depths;
  for (const std::int32_t parent : input.tree_parents) {
    depths.push_back(parent < 0 ? 1 : depths[size(parent)] + 1);
    deepest = std::max(deepest, depths.back());
  }
  return input.prefix_length + deepest;
}

void read_tree(ConfigReader& tree, int vocabulary, int positions_max, ScoreInput& input) {
  constexpr int kNodes = limits::tree_nodes + 1;
  const int tokens = static_cast<int>(input.input_ids.size());
  input.prefix_length = tree.integer("prefix_len", 0, tokens);
  input.tree_token_ids = tree.integers("token_ids", 0, vocabulary - 1, kNodes);
  input.tree_parents = tree.integers("parents", -1, kNodes, kNodes);
  if (input.tree_parents.size() != input.tree_token_ids.size()) {
    tree.fail(ErrorCode::invalid_argument, "parents", "must have as many entries as token_ids");
  }
  for (std::size_t i = 0; i < input.tree_parents.size(); ++i) {
    if (input.tree_parents[i] >= static_cast<int>(i)) {
      return tree.fail(ErrorCode::invalid_argument, "parents", "must come before their children");
    }
  }
  const int reached = tree_positions(input);
  if (reached > positions_max) {
    tree.fail(ErrorCode::invalid_argument, "", beyond_positions(reached, positions_max));
  }
}

}  // namespace

Result<ScoreInput> parse_score_input(const Json& json, int vocabulary, int positions_max,
                                     const std::string& document) {
  ConfigReader reader(json, "", document);
  ScoreInput input;
  input.input_ids = reader.integers("input_ids", 0, vocabulary - 1, limits::sequence_tokens);
  if (input.input_ids.empty()) reader.fail(ErrorCode::not_found, "input_ids", "is missing");
  const int tokens = static_cast<int>(input.input_ids.size());
  if (tokens > positions_max) {
    reader.fail(ErrorCode::invalid_argument, "input_ids", beyond_positions(tokens, positions_max));
  }
  if (reader.has("tree")) {
    ConfigReader tree = reader.object("tree");
    read_tree(tree, vocabulary, positions_max, input);
    reader.absorb(tree);
  }
  COPSE_RETURN_IF_ERROR(reader.status());
  return input;
}

Result<std::unique_ptr<Scorer>> Scorer::load(const std::string& folder, Collective& group,
                                             ThreadPool& threads, const OnWeightsRead& progress) {
  COPSE_TRY(const ModelConfig config, read_model_config(folder));
  TargetOptions options;
  options.rows_max = limits::tree_nodes + 1;
  options.logit_rows_max = options.rows_max;
  options.feature_layers = state_layers(config.layers);
  COPSE_TRY(std::unique_ptr<TargetModel> model,
            TargetModel::load(folder, config, options, group, threads, progress));
  return std::unique_ptr<Scorer>(new Scorer(std::move(model), group));
}

Result<std::vector<float>> Scorer::gather(std::span<const float> local) {
  const VocabularyShard& shard = model_->vocabulary();
  const std::size_t width = size(shard.local);
  const std::size_t rows = local.size() / width;
  const std::size_t vocabulary = size(model_->config().vocabulary);
  std::vector<float> all(local.size() * size(group_.world_size()));
  COPSE_RETURN_IF_ERROR(
      group_.all_gather(std::as_bytes(local), std::as_writable_bytes(std::span(all))));
  std::vector<float> logits(rows * vocabulary);
  for (std::size_t first = 0, rank = 0; first < vocabulary; first += width, ++rank) {
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(all.data() + (rank * rows + r) * width, std::min(width, vocabulary - first),
                  logits.data() + r * vocabulary + first);
    }
  }
  return logits;
}

void Scorer::add_features(std::span<const float> features, ScoreOutput& output) const {
  const auto hidden = static_cast<std::ptrdiff_t>(output.hidden);
  const std::vector<int> kept = state_layers(model_->config().layers);
  const auto width = static_cast<std::ptrdiff_t>(kept.size()) * hidden;
  const auto offset = [&](int layer) {
    return (std::find(kept.begin(), kept.end(), layer) - kept.begin()) * hidden;
  };
  const auto take = [&](int layer, std::vector<float>& into) {
    for (auto row = features.begin(); row != features.end(); row += width) {
      into.insert(into.end(), row + offset(layer), row + offset(layer) + hidden);
    }
  };
  take(0, output.layer0_out);
  take(model_->config().layers - 2, output.hidden_last_layer_in);
}

Result<ScoreOutput> Scorer::score(const ScoreInput& input) {
  ScoreOutput output;
  output.vocabulary = model_->config().vocabulary;
  output.hidden = model_->config().hidden;
  const std::span<const TokenId> tokens = input.input_ids;
  SequenceRunner runner(*model_, static_cast<int>(tokens.size()));
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t count = std::min(size(runner.chunk_rows()), tokens.size() - at);
    COPSE_TRY(const ForwardOutput chunk,
              runner.append(tokens.subspan(at, count), SequenceRunner::Logits::all));
    add_features(chunk.features, output);
    COPSE_TRY(const std::vector<float> logits, gather(chunk.logits));
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
    at += count;
  }
  if (input.tree_token_ids.empty()) return output;
  if (input.tree_token_ids.size() > size(limits::tree_nodes + 1)) {
    return Error{ErrorCode::resource_exhausted, "tree", "has too many nodes"};
  }
  COPSE_TRY(const ForwardOutput tree,
            runner.tree(input.prefix_length, input.tree_token_ids, input.tree_parents));
  COPSE_TRY(output.tree_logits, gather(tree.logits));
  return output;
}

Status write_score(const std::string& path, const ScoreOutput& output) {
  const auto matrix = [&](const char* name, const std::vector<float>& values) {
    const std::int64_t rows = static_cast<std::int64_t>(values.size()) / output.vocabulary;
    return FloatTensor{name, {rows, output.vocabulary}, values};
  };
  std::vector<FloatTensor> tensors = {matrix("logits", output.logits)};
  if (!output.tree_logits.empty()) tensors.push_back(matrix("tree_logits", output.tree_logits));
  return write_safetensors(path, tensors);
}

}  // namespace copse
