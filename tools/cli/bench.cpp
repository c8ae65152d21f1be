// `copse bench rank-of`: the program of that name needs CUDA's libraries, so it stands beside this
// one and takes its place.
#include <unistd.h>

#include <string>
#include <vector>

#include "base/process.h"
#include "tools/cli/commands.h"

namespace copse::cli {
namespace {

constexpr char kProgram[] = "copse-rank-of";

// Returns only if it did not.
Outcome become(const std::vector<std::string>& arguments) {
  const Result<std::string> program = program_beside_self(kProgram);
  if (!program.ok()) {
    return Error{ErrorCode::unavailable, kProgram,
                 "is not beside this program; builds without CUDA do not have it"};
  }
  std::vector<char*> argv{const_cast<char*>((*program).c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv((*program).c_str(), argv.data());
  return Error{ErrorCode::unavailable, kProgram, "cannot be started"};
}

}  // namespace

Run add_bench_rank_of(CLI::App& app) {
  app.allow_extras();
  app.set_help_flag();  // all flags are that program's
  return [&app] { return become(app.remaining()); };
}

}  // namespace copse::cli
