#include "tools/cli/sampling_options.h"

namespace copse::cli {
namespace {

// Below this a temperature is argmax: dividing by it would overflow.
constexpr double kArgmaxBelow = 1e-5;

}  // namespace

void add_sampling_options(CLI::App& app, SamplingOptions& o) {
  app.add_option("--max-tokens", o.max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(1, limits::sequence_tokens));
  app.add_option("--temperature", o.temperature, "0: the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-p", o.top_p, "Smallest set of tokens with this probability")
      ->check(CLI::Range(1e-9, 1.0));
  app.add_option("--top-k", o.top_k, "Only the k most likely tokens; 0: all")
      ->check(CLI::Range(0, limits::vocabulary));
  app.add_option("--min-p", o.min_p, "Only tokens with this share of the best one's probability")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", o.seed, "Of the noise; the same seed draws the same tokens");
  app.add_flag("--ignore-eos", o.ignore_eos, "Go on behind end-of-text tokens");
}

Submit to_submit(const SamplingOptions& o) {
  Submit submit;
  submit.max_tokens = static_cast<std::uint32_t>(o.max_tokens);
  submit.ignore_end = o.ignore_eos;
  submit.sampling.temperature =
      o.temperature < kArgmaxBelow ? 0.0f : static_cast<float>(o.temperature);
  submit.sampling.top_p = static_cast<float>(o.top_p);
  submit.sampling.min_p = static_cast<float>(o.min_p);
  submit.sampling.top_k = o.top_k;
  submit.sampling.seed = o.seed;
  return submit;
}

}  // namespace copse::cli
