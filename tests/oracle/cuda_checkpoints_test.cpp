// Every checkpoint folder against Hugging Face's numbers on a GPU: in float32 closely, in bf16 by
// norm and by the best token wherever its margin is larger than bf16's error. Ranks are processes;
// more than one share the GPU and meet over NCCL. COPSE_GPU_RANKS chooses how many, for instance
// "1 2 8".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "model/cuda/scorer_cuda.h"
#include "tests/oracle/oracle.h"
#include "transport/collective/device_collective_local.h"
#include "transport/collective/gpu_ranks_for_test.h"

namespace copse::oracle {
namespace {

constexpr float kFloat32Tolerance = 1e-3f;
constexpr double kBf16Error = 2e-2;

std::vector<int> world_sizes() {
  const char* chosen = std::getenv("COPSE_GPU_RANKS");
  std::istringstream words(chosen != nullptr ? chosen : "1 2 8");
  std::vector<int> sizes;
  for (int size = 0; words >> size;) sizes.push_back(size);
  return sizes;
}

struct Golden {
  Json json;
  std::vector<float> logits;
  std::vector<float> tree_logits;
};
Golden golden_of(const std::string& folder) {
  const std::string tensors = folder + "/golden.safetensors";
  return {golden_json(folder + "/golden.json"), golden_tensor(tensors, "golden.logits"),
          golden_tensor(tensors, "golden.tree_logits")};
}

bool float32_matches(const std::string& folder, CudaScorer& scorer, const Golden& golden,
                     const ScoreInput& input) {
  const auto output = scorer.score(input);
  if (!output.ok()) return complain(folder + ": " + describe(output.error()));
  const bool logits = close(folder + " logits", output->logits, golden.logits, kFloat32Tolerance);
  return close(folder + " tree_logits", output->tree_logits, golden.tree_logits,
               kFloat32Tolerance) &&
         logits;
}

// `count` tokens after the golden prompt, each by scoring all before it.
bool greedy_matches(const std::string& folder, CudaScorer& scorer, const Golden& golden) {
  ScoreInput input;
  input.input_ids = token_ids(golden.json.at("input_ids"));
  input.input_ids.resize(golden.json.at("greedy_prompt_len").get<std::size_t>());
  const std::vector<TokenId> expected = token_ids(golden.json.at("greedy_ids"));
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto output = scorer.score(input);
    if (!output.ok()) return complain(folder + ": " + describe(output.error()));
    const auto vocabulary = static_cast<std::size_t>(output->vocabulary);
    tokens.push_back(argmax(std::span(output->logits).last(vocabulary)));
    input.input_ids.push_back(tokens.back());
  }
  return equal(folder + " greedy_ids", tokens, expected);
}

double relative(std::span<const float> got, std::span<const float> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Largest minus second largest.
float margin(std::span<const float> row) {
  const auto best = static_cast<std::size_t>(argmax(row));
  float second = -INFINITY;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i != best) second = std::max(second, row[i]);
  }
  return row[best] - second;
}

// Rows that a router's other choice in bf16 spoiled: their own error stands far out of the others'.
std::vector<bool> spoiled_rows(const std::string& what, std::span<const float> got,
                               std::span<const float> expected, std::size_t width) {
  const std::size_t rows = got.size() / width;
  std::vector<double> errors;
  for (std::size_t row = 0; row < rows; ++row) {
    errors.push_back(
        relative(got.subspan(row * width, width), expected.subspan(row * width, width)));
  }
  std::vector<double> sorted = errors;
  std::ranges::sort(sorted);
  const double usual = sorted[sorted.size() / 4];
  std::vector<bool> spoiled;
  for (std::size_t row = 0; row < rows; ++row) {
    spoiled.push_back(errors[row] > 4 * usual);
    if (spoiled.back())
      std::printf("  %s: row %zu is off by %.3g\n", what.c_str(), row, errors[row]);
  }
  return spoiled;
}

// The best token of each row is the golden one where its margin is above four times the largest
// error of the folder. Spoiled rows are named, left out, and few.
bool bf16_matches(const std::string& what, std::span<const float> got,
                  std::span<const float> expected, int vocabulary) {
  if (got.size() != expected.size()) return complain(what + ": another number of logits");
  const auto width = static_cast<std::size_t>(vocabulary);
  const std::vector<bool> spoiled = spoiled_rows(what, got, expected, width);
  std::vector<float> mine;
  std::vector<float> theirs;
  for (std::size_t row = 0; row < spoiled.size(); ++row) {
    if (spoiled[row]) continue;
    const auto at = static_cast<std::ptrdiff_t>(row * width);
    const auto end = at + static_cast<std::ptrdiff_t>(width);
    mine.insert(mine.end(), got.begin() + at, got.begin() + end);
    theirs.insert(theirs.end(), expected.begin() + at, expected.begin() + end);
  }
  const double error = relative(mine, theirs);
  float largest = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    largest = std::max(largest, std::abs(mine[i] - theirs[i]));
  }
  const std::size_t kept = mine.size() / width;
  bool good = std::isfinite(error) && error < kBf16Error && 4 * kept >= 3 * spoiled.size();
  int judged = 0;
  for (std::size_t row = 0; row < kept; ++row) {
    const auto a = std::span(mine).subspan(row * width, width);
    const auto b = std::span(theirs).subspan(row * width, width);
    if (margin(b) <= 4 * largest) continue;
    ++judged;
    if (argmax(a) != argmax(b)) good = complain(what + ": another best token");
  }
  std::printf(
      "%s: bf16 error %.2e (%.2e with spoiled rows), largest %.3g, %d of %zu rows judged by their "
      "best token, %zu spoiled\n",
      what.c_str(), error, relative(got, expected), static_cast<double>(largest), judged, kept,
      spoiled.size() - kept);
  std::fflush(stdout);
  return good || complain(what + ": bf16 error " + std::to_string(error));
}

bool folder_matches(const std::string& folder, DeviceCollective& group, bool float32,
                    bool with_greedy) {
  CudaScoreOptions options;
  options.model = folder;
  options.float32 = float32;
  const auto scorer = CudaScorer::load(options, group);
  if (!scorer.ok()) return complain(folder + ": " + describe(scorer.error()));
  const Golden golden = golden_of(folder);
  const auto input = parse_score_input(golden.json, (*scorer)->config().vocabulary);
  if (!input.ok()) return complain(folder + ": " + describe(input.error()));
  if (float32) {
    const bool tensors = float32_matches(folder, **scorer, golden, *input);
    return (!with_greedy || greedy_matches(folder, **scorer, golden)) && tensors;
  }
  const auto output = (*scorer)->score(*input);
  if (!output.ok()) return complain(folder + ": " + describe(output.error()));
  if (group.rank() != 0) return true;
  const bool logits =
      bf16_matches(folder + " logits", output->logits, golden.logits, output->vocabulary);
  return bf16_matches(folder + " tree_logits", output->tree_logits, golden.tree_logits,
                      output->vocabulary) &&
         logits;
}

// Forked, since a driver that was started does not survive a fork.
bool run_gpu_ranks(int world_size, const std::function<bool(DeviceCollective&)>& body) {
  GpuRanks ranks;
  if (world_size > 1) {
    return ranks.run(world_size, [&](GpuRank& rank) { return body(rank.collective); });
  }
  const pid_t pid = fork();
  if (pid == 0) _exit(body(*make_local_device_collective()) ? 0 : 1);
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class CudaCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_here()) GTEST_SKIP() << "there is no GPU here";
  }
  void every_folder(bool float32) {
    const std::vector<std::string> folders = checkpoint_folders();
    ASSERT_FALSE(folders.empty()) << "no checkpoint folder was found";
    for (const int world_size : world_sizes()) {
      // Eight ranks on one GPU take a tenth of a second a collective: no token by token there.
      const bool with_greedy = world_size == 1;
      EXPECT_TRUE(run_gpu_ranks(world_size,
                                [&](DeviceCollective& group) {
                                  bool good = true;
                                  for (const std::string& folder : folders) {
                                    good =
                                        folder_matches(folder, group, float32, with_greedy) && good;
                                  }
                                  return good;
                                }))
          << "at tp " << world_size;
    }
  }
};

TEST_F(CudaCheckpoints, Float32LogitsAndGreedyTokens) {
  every_folder(true);
}

TEST_F(CudaCheckpoints, Bf16LogitsAndBestTokens) {
  every_folder(false);
}

}  // namespace
}  // namespace copse::oracle
