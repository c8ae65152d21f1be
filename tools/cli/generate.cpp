// `copse generate`: one prompt through the same processes as serve, without HTTP.
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "model/tokenizer/tokenizer.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_session.h"
#include "tools/cli/model_folder.h"
#include "tools/cli/request.h"
#include "tools/cli/sampling_options.h"

namespace copse::cli {
namespace {

struct GenerateOptions {
  EngineOptions engine;
  SamplingOptions sampling;
  std::string prompt;
  std::string prompt_ids;
  bool json = false;
};

Result<std::vector<TokenId>> parse_ids(const std::string& text) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ',')) {
      return Error{ErrorCode::invalid_argument, "--prompt-ids", "must be numbers with commas"};
    }
    ids.push_back(id);
    at = next == end ? end : next + 1;
  }
  return ids;
}

Result<std::vector<TokenId>> prompt_tokens(const GenerateOptions& options,
                                           const Tokenizer& tokenizer) {
  if (options.prompt.empty() == options.prompt_ids.empty()) {
    return Error{ErrorCode::invalid_argument, "--prompt", "give either --prompt or --prompt-ids"};
  }
  if (!options.prompt_ids.empty()) return parse_ids(options.prompt_ids);
  return tokenizer.encode(options.prompt, {.parse_special = false, .add_bos = true});
}

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
    case FinishReason::error:
      return "error";
    case FinishReason::none:
      break;
  }
  return "none";
}

Json draft_json(const DraftSummary& draft, const std::string& mode, const std::string& reason) {
  Json by_position = Json::array(), walks = Json::array();
  for (const std::uint32_t count : draft.accepted_by_position) by_position.push_back(count);
  for (const std::uint16_t length : draft.walk_lengths) walks.push_back(length);
  return {{"mode", mode},
          {"reason", reason},  // the policy's, of its last step; empty unless the mode is auto
          {"budget", draft.node_budget},
          {"rounds", draft.rounds},
          {"accepted_per_round",
           draft.rounds == 0 ? 0.0 : static_cast<double>(draft.round_tokens) / draft.rounds},
          {"accepted_by_position", std::move(by_position)},
          {"walk_lengths", std::move(walks)}};
}

// Where the time of the decode steps went: parts of rank 0's wall time, and what all ranks
// computed. Everything the engine did for this command, since it did nothing else.
Json steps_json(const EngineStatus& status, std::uint32_t decode_steps) {
  std::uint64_t compute = 0;
  for (const RankStatus& rank : status.ranks) compute += rank.total_timing.compute_cpu_us;
  const TimingTotals& t = status.ranks[0].total_timing;
  return {{"decode_steps", decode_steps},     {"draft_us", t.draft_us},
          {"build_us", t.build_us},           {"verify_us", t.verify_us},
          {"accept_us", t.accept_us},         {"prefill_us", t.prefill_us},
          {"collective_us", t.collective_us}, {"total_us", t.total_us},
          {"ranks_compute_cpu_us", compute},  {"control_us", status.control_us}};
}

Json answer_json(const Collector& got, std::size_t prompt_tokens, const std::string& mode,
                 double load_s, Instant sent, const std::string& reason, Json steps) {
  const auto tokens = static_cast<double>(got.ids.size());
  const double decode_s = seconds(got.last - got.first);
  return {{"text", got.text},
          {"token_ids", got.ids},
          {"finish_reason", name_of(got.finished->reason)},
          {"usage",
           {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", got.ids.size()},
            {"total_tokens", prompt_tokens + got.ids.size()}}},
          {"draft", draft_json(got.finished->draft, mode, reason)},
          {"timing",
           {{"load_s", load_s},
            {"ttft_s", seconds(got.first - sent)},
            {"decode_s", decode_s},
            // The first token is the prefill's.
            {"decode_tok_s", decode_s > 0 ? (tokens - 1) / decode_s : 0.0}}},
          {"steps", std::move(steps)}};
}

Outcome run(GenerateOptions& options) {
  COPSE_RETURN_IF_ERROR(complete(options.engine));
  COPSE_RETURN_IF_ERROR(check_models(options.engine));
  COPSE_TRY_MODEL(const auto tokenizer, Tokenizer::load(options.engine.model));
  COPSE_TRY(const std::vector<TokenId> ids, prompt_tokens(options, *tokenizer));
  COPSE_TRY(const auto session, EngineSession::start(options.engine, !options.json));
  COPSE_RETURN_IF_ERROR(session->wait_ready());

  const Instant sent = SteadyClock().now();
  COPSE_TRY(const auto collector,
            run_request(*session, *tokenizer, to_submit(options.sampling), ids, !options.json));
  // The last step's status comes with the next heartbeat. After a restart the new workers' totals
  // begin anew: then whatever is known is reported.
  const std::uint32_t rounds = collector->finished->draft.rounds;
  COPSE_RETURN_IF_ERROR(session->run_until([&] {
    const auto& status = session->client().status();
    return status.has_value() && !status->ranks.empty() && status->running == 0 &&
           (status->restarts > 0 || status->ranks[0].total_timing.steps >= rounds);
  }));
  const std::string reason =
      options.engine.draft == "auto" ? session->client().status()->draft_reason : "";
  const Json answer = answer_json(*collector, ids.size(), options.engine.draft, session->load_s(),
                                  sent, reason, steps_json(*session->client().status(), rounds));
  if (options.json) {
    std::printf("%s\n", dump_json(answer).c_str());
  } else {
    std::printf("\n");
    std::fprintf(stderr, "%zu tokens, %.1f tok/s, %.2f accepted per round\n", collector->ids.size(),
                 answer["timing"]["decode_tok_s"].get<double>(),
                 answer["draft"]["accepted_per_round"].get<double>());
  }
  return 0;
}

}  // namespace

Run add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  add_engine_options(app, options->engine);
  add_sampling_options(app, options->sampling);
  app.add_option("--prompt", options->prompt, "Text to continue");
  app.add_option("--prompt-ids", options->prompt_ids, "Token ids to continue: 1,2,3");
  app.add_flag("--json", options->json, "Print one JSON object");
  return [options] { return run(*options); };
}

}  // namespace copse::cli
