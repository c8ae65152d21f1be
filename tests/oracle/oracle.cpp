#include "tests/oracle/oracle.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "model/score/sequence_runner.h"
#include "model/weights/safetensors.h"
#include "transport/collective/local.h"
#include "transport/collective/ranks_for_test.h"

namespace copse::oracle {

std::vector<std::string> checkpoint_folders() {
  const char* chosen = std::getenv("COPSE_ORACLE_DIR");
  const std::string root = chosen != nullptr ? chosen : "tests/oracle/data";
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool run_ranks(int world_size, const std::function<bool(Collective&)>& body) {
  if (world_size == 1) return body(*make_local_collective());
  ShmOptions options;
  options.world_size = world_size;
  return processes_succeed(options, body);
}

std::vector<float> golden_tensor(const std::string& path, const std::string& name) {
  const auto file = SafetensorsFile::open(path);
  CHECK(file.ok() && file->tensors().contains(name));
  const TensorInfo& info = file->tensors().at(name);
  CHECK(info.type == StoredType::f32);
  std::vector<float> values(info.bytes / sizeof(float));
  CHECK(file->read(info, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

Json golden_json(const std::string& path) {
  JsonBounds bounds;
  bounds.bytes = 64u << 20;
  auto json = read_json_file(path, bounds);
  CHECK(json.ok());
  return *std::move(json);
}

std::vector<TokenId> token_ids(const Json& list) {
  return list.get<std::vector<TokenId>>();
}

bool complain(const std::string& what) {
  std::fprintf(stderr, "oracle: %s\n", what.c_str());
  return false;
}

bool close(const std::string& what, std::span<const float> got, std::span<const float> expected,
           float tolerance) {
  if (got.size() != expected.size() || got.empty()) {
    return complain(what + ": " + std::to_string(got.size()) + " values instead of " +
                    std::to_string(expected.size()));
  }
  float worst = 0.0f;
  std::size_t where = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float apart = std::fabs(got[i] - expected[i]);
    if (!(apart <= worst)) {  // a NaN is worse than anything
      worst = apart;
      where = i;
      if (std::isnan(apart)) break;
    }
  }
  if (worst <= tolerance) return true;
  return complain(what + ": off by " + std::to_string(worst) + " at " + std::to_string(where) +
                  " of " + std::to_string(got.size()));
}

bool equal(const std::string& what, std::span<const TokenId> got,
           std::span<const TokenId> expected) {
  const auto [a, b] = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  if (a == got.end() && b == expected.end() && !got.empty()) return true;
  return complain(what + ": first difference at " + std::to_string(a - got.begin()));
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Result<std::vector<TokenId>> greedy(Scorer& scorer, std::span<const TokenId> prompt, int count) {
  SequenceRunner runner(scorer.model(), static_cast<int>(prompt.size()) + count);
  std::vector<TokenId> tokens;
  std::span<const TokenId> next = prompt;
  while (static_cast<int>(tokens.size()) < count) {
    const std::size_t rows = std::min(next.size(), static_cast<std::size_t>(runner.chunk_rows()));
    COPSE_TRY(const ForwardOutput output,
              runner.append(next.first(rows), SequenceRunner::Logits::last));
    next = next.subspan(rows);
    if (!next.empty()) continue;
    COPSE_TRY(const std::vector<float> logits, scorer.gather(output.logits));
    tokens.push_back(argmax(logits));
    next = std::span(tokens).last(1);
  }
  return tokens;
}

SharedFloats::SharedFloats(std::size_t count)
    : count_(count),
      data_(static_cast<float*>(::mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  CHECK(data_ != MAP_FAILED);
}

SharedFloats::~SharedFloats() {
  ::munmap(data_, count_ * sizeof(float));
}

}  // namespace copse::oracle
