#pragma once
// What the oracle tests share: folders, golden files, ranks as real processes, comparisons. Checks
// run inside ranks, so they print what is wrong and return false; the parent's test then fails.
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/types.h"
#include "model/score/scorer.h"
#include "transport/collective/collective.h"

namespace copse::oracle {

// Checkpoint folders (those with a golden.json) under $COPSE_ORACLE_DIR, or under the project's own
// tests/oracle/data. Sorted.
std::vector<std::string> checkpoint_folders();

// Runs `body` on every rank of a group: forked processes that meet in shared memory. True if all
// returned true. A rank that hangs is an error of the collective within its time limit.
bool run_ranks(int world_size, const std::function<bool(Collective&)>& body);

// A float32 tensor of a golden file; the process ends if there is none.
std::vector<float> golden_tensor(const std::string& path, const std::string& name);
Json golden_json(const std::string& path);
std::vector<TokenId> token_ids(const Json& list);

// Prints and returns false.
bool complain(const std::string& what);
// Every value within `tolerance`, none of them NaN, as many as expected.
bool close(const std::string& what, std::span<const float> got, std::span<const float> expected,
           float tolerance);
bool equal(const std::string& what, std::span<const TokenId> got,
           std::span<const TokenId> expected);

// Highest logit; the lower id on a tie.
TokenId argmax(std::span<const float> logits);
// `count` greedy tokens after `prompt`: prefill in chunks, then one token a step, each committed.
Result<std::vector<TokenId>> greedy(Scorer& scorer, std::span<const TokenId> prompt, int count);

// Memory that forked ranks can hand a result back in.
class SharedFloats {
 public:
  explicit SharedFloats(std::size_t count);
  ~SharedFloats();
  SharedFloats(const SharedFloats&) = delete;
  SharedFloats& operator=(const SharedFloats&) = delete;
  std::span<float> values() { return {data_, count_}; }

 private:
  std::size_t count_;
  float* data_;
};

}  // namespace copse::oracle
