// `copse score`: logits of a given text, and of a given tree behind a prefix of it. Ranks are
// forked processes that meet over shared memory, as workers do.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/common/thread_pool.h"
#include "model/cuda/plugin.h"
#include "model/cuda/verify_kernel.h"
#include "model/score/scorer.h"
#include "tools/cli/commands.h"
#include "tools/cli/device_options.h"
#include "tools/cli/model_folder.h"
#include "transport/collective/local.h"
#include "transport/collective/shm.h"

namespace copse::cli {
namespace {

struct ScoreOptions {
  std::string model;
  std::string input;
  std::string out;
  int tp = 1;
  int threads = 1;
  bool json = false;
  DeviceOptions device;
};

// On a GPU; `host` is where the ranks meet.
Outcome score_rank_cuda(const ScoreOptions& options, const ScoreInput& input, Collective& host) {
  COPSE_TRY(const auto prepare, cuda_function<CudaPrepareFunction>("copse_cuda_prepare"));
  COPSE_TRY(const auto join, cuda_function<CudaJoinFunction>("copse_cuda_join"));
  COPSE_TRY(const auto load, cuda_function<CudaLoadScorerFunction>("copse_cuda_load_scorer"));
  CudaGroupOptions group;
  group.rank = host.rank();
  group.world_size = host.world_size();
  group.share_gpu = options.device.share_gpu;
  group.device = group.share_gpu ? 0 : group.rank;
  prepare(&group);
  Result<std::unique_ptr<DeviceCollective>> joined =
      Error{ErrorCode::internal, "collective", "nobody joined it"};
  join(&group, &host, &joined);
  COPSE_TRY(const std::unique_ptr<DeviceCollective> ranks, std::move(joined));
  CudaScoreOptions scoring;
  scoring.model = options.model;
  scoring.device = group.device;
  scoring.float32 = options.device.dtype == "float32";
  scoring.verify = verify_kernel(options.device.verify_kernel);
  Result<std::unique_ptr<CudaScorer>> loaded =
      Error{ErrorCode::internal, "device", "nothing was loaded"};
  load(&scoring, ranks.get(), &loaded);
  COPSE_TRY_MODEL(const std::unique_ptr<CudaScorer> scorer, std::move(loaded));
  COPSE_TRY(const ScoreOutput output, scorer->score(input));
  if (host.rank() != 0) return kSuccess;
  COPSE_RETURN_IF_ERROR(write_score(options.out, output));
  return kSuccess;
}

Outcome score_rank(const ScoreOptions& options, const ScoreInput& input, Collective& group) {
  if (options.device.device == "cuda") return score_rank_cuda(options, input, group);
  ThreadPool threads(options.threads);
  COPSE_TRY_MODEL(const auto scorer, Scorer::load(options.model, group, threads));
  COPSE_TRY(const ScoreOutput output, scorer->score(input));
  if (group.rank() != 0) return kSuccess;
  COPSE_RETURN_IF_ERROR(write_score(options.out, output));
  return kSuccess;
}

// The other ranks; each exits by itself when it is done or the group is broken.
Result<std::vector<pid_t>> fork_ranks(const ScoreOptions& options, const ScoreInput& input,
                                      int fd) {
  std::vector<pid_t> ranks;
  for (int rank = 1; rank < options.tp; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) return Error{ErrorCode::io, "--tp", "a rank cannot be started"};
    if (pid == 0) {
      auto group = join_shm(fd, rank, options.tp);
      const bool ok = group.ok() && score_rank(options, input, **group).ok();
      _exit(ok ? 0 : kFailed);
    }
    ranks.push_back(pid);
  }
  return ranks;
}

Outcome score_group(const ScoreOptions& options, const ScoreInput& input) {
  if (options.tp == 1) {
    const auto alone = make_local_collective();
    return score_rank(options, input, *alone);
  }
  COPSE_TRY(const int fd, create_shm_region({.world_size = options.tp}));
  const auto ranks = fork_ranks(options, input, fd);
  auto group = join_shm(fd, 0, options.tp);
  Outcome outcome = kSuccess;
  if (!ranks.ok()) {
    outcome = ranks.error();
  } else {
    outcome = group.ok() ? score_rank(options, input, **group) : Outcome(group.error());
  }
  if (!outcome.ok() && group.ok()) (*group)->abort();
  close(fd);
  if (!ranks.ok()) return outcome;
  for (const pid_t pid : *ranks) {
    int raw = 0;
    waitpid(pid, &raw, 0);
    if (outcome.ok() && raw != 0) outcome = Error{ErrorCode::internal, "--tp", "a rank failed"};
  }
  return outcome;
}

Result<ScoreInput> read_input(const std::string& path, const ModelConfig& config) {
  COPSE_TRY(const Json json, read_json_file(path, {}, FileKind::any));
  return parse_score_input(json, config.vocabulary, config.positions_max,
                           path.substr(path.rfind('/') + 1));
}

Outcome run(ScoreOptions& options) {
  for (const auto& [flag, value] :
       {std::pair{"--model", options.model}, {"--input", options.input}, {"--out", options.out}}) {
    if (value.empty()) return Error{ErrorCode::invalid_argument, flag, "is required"};
  }
  options.threads = usable_threads(options.threads);
  COPSE_RETURN_IF_ERROR(check_device(options.device, options.tp));
  COPSE_RETURN_IF_ERROR(check_folder("--model", options.model));
  COPSE_TRY_MODEL(const ModelConfig config, read_model_config(options.model));
  COPSE_TRY(const ScoreInput input, read_input(options.input, config));
  COPSE_RETURN_IF_ERROR(score_group(options, input));
  if (options.json) {
    std::printf("%s\n", dump_json({{"out", options.out}, {"tp", options.tp}}).c_str());
  } else {
    std::fprintf(stderr, "wrote %s\n", options.out.c_str());
  }
  return kSuccess;
}

}  // namespace

Run add_score(CLI::App& app) {
  auto options = std::make_shared<ScoreOptions>();
  app.add_option("--model,--model-path", options->model, "Folder of the checkpoint");
  app.add_option("--input", options->input,
                 "JSON with input_ids and, if wanted, tree {prefix_len, token_ids, parents}");
  app.add_option("--out", options->out,
                 "Safetensors file with logits [n, vocab] and tree_logits [nodes, vocab], float32");
  app.add_option("--tp,--tensor-parallel-size", options->tp, "Processes, one shard each")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--threads", options->threads, "Compute threads per process")
      ->check(CLI::Range(1, limits::worker_threads));
  add_device_options(app, options->device);
  app.add_flag("--json", options->json, "Print one JSON object");
  return [options] { return run(*options); };
}

}  // namespace copse::cli
