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
#include "model/score/scorer.h"
#include "tools/cli/commands.h"
#include "transport/collective/local.h"
#include "transport/collective/shm.h"

namespace copse::cli {
namespace {

constexpr int kRankFailed = 1;

struct ScoreOptions {
  std::string model;
  std::string input;
  std::string out;
  int tp = 1;
  int threads = 1;
  bool json = false;
};

Status score_rank(const ScoreOptions& options, const Json& input, Collective& group) {
  ThreadPool threads(options.threads);
  COPSE_TRY(const auto scorer, Scorer::load(options.model, group, threads));
  COPSE_TRY(const ScoreInput parsed, parse_score_input(input, scorer->model().config().vocabulary));
  COPSE_TRY(const ScoreOutput output, scorer->score(parsed));
  return group.rank() == 0 ? write_score(options.out, output) : Status();
}

// The other ranks; each exits by itself when it is done or the group is broken.
Result<std::vector<pid_t>> fork_ranks(const ScoreOptions& options, const Json& input, int fd) {
  std::vector<pid_t> ranks;
  for (int rank = 1; rank < options.tp; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) return Error{ErrorCode::io, "--tp", "a rank cannot be started"};
    if (pid == 0) {
      auto group = join_shm(fd, rank, options.tp);
      const bool ok = group.ok() && score_rank(options, input, **group).ok();
      _exit(ok ? 0 : kRankFailed);
    }
    ranks.push_back(pid);
  }
  return ranks;
}

Status score_group(const ScoreOptions& options, const Json& input) {
  if (options.tp == 1) {
    const auto alone = make_local_collective();
    return score_rank(options, input, *alone);
  }
  COPSE_TRY(const int fd, create_shm_region({.world_size = options.tp}));
  Status status;
  const auto ranks = fork_ranks(options, input, fd);
  auto group = join_shm(fd, 0, options.tp);
  if (!ranks.ok()) {
    status = ranks.error();
  } else {
    status = group.ok() ? score_rank(options, input, **group) : Status(group.error());
  }
  if (!status.ok() && group.ok()) (*group)->abort();
  close(fd);
  if (!ranks.ok()) return status;
  for (const pid_t pid : *ranks) {
    int raw = 0;
    waitpid(pid, &raw, 0);
    if (status.ok() && raw != 0) status = Error{ErrorCode::internal, "--tp", "a rank failed"};
  }
  return status;
}

Result<int> run(const ScoreOptions& options) {
  for (const auto& [flag, value] :
       {std::pair{"--model", options.model}, {"--input", options.input}, {"--out", options.out}}) {
    if (value.empty()) return Error{ErrorCode::invalid_argument, flag, "is required"};
  }
  COPSE_TRY(const Json input, read_json_file(options.input, {}, FileKind::any));
  COPSE_RETURN_IF_ERROR(score_group(options, input));
  if (options.json) {
    std::printf("%s\n", dump_json({{"out", options.out}, {"tp", options.tp}}).c_str());
  } else {
    std::fprintf(stderr, "wrote %s\n", options.out.c_str());
  }
  return 0;
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
  app.add_flag("--json", options->json, "Print one JSON object");
  return [options] { return run(*options); };
}

}  // namespace copse::cli
