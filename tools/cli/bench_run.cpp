#include "tools/cli/bench_run.h"

#include <algorithm>
#include <cstdio>

#include "base/digest.h"
#include "tools/cli/request.h"

namespace copse::cli {
namespace {

Submit submit_of(int tokens) {
  Submit submit;  // temperature 0, and drafting as the engine was started
  submit.max_tokens = static_cast<std::uint32_t>(tokens);
  submit.ignore_end = true;
  return submit;
}

std::uint64_t digest_of(const std::vector<TokenId>& ids) {
  return DigestChain().add(std::span<const TokenId>(ids)).value();
}

}  // namespace

Outcome ContextRun::measure() {
  COPSE_TRY(const auto session, EngineSession::start(engine_, /*progress=*/true));
  COPSE_RETURN_IF_ERROR(session->wait_ready());
  context_tokens_ = static_cast<int>(session->client().welcome()->context_tokens);
  COPSE_RETURN_IF_ERROR(warm_up(*session));
  COPSE_RETURN_IF_ERROR(measure_contexts(*session));
  return read_facts(*session);
}

Outcome ContextRun::warm_up(EngineSession& session) {
  const int shortest = *std::min_element(plan_.contexts.begin(), plan_.contexts.end());
  if (shortest + plan_.gen_tokens > context_tokens_) return kSuccess;
  for (int i = 0; i < plan_.warmup; ++i) {
    // Indices behind those that are measured, so that no measured prompt was seen before.
    COPSE_TRY([[maybe_unused]] const ContextSample unused,
              request(session, shortest, plan_.prompts + i));
  }
  return kSuccess;
}

Outcome ContextRun::measure_contexts(EngineSession& session) {
  for (const int context : plan_.contexts) {
    if (context + plan_.gen_tokens > context_tokens_) {
      skipped_.push_back(context);
      continue;
    }
    for (int index = 0; index < plan_.prompts; ++index) {
      COPSE_TRY(const ContextSample sample, request(session, context, index));
      samples_.push_back(sample);
      std::fprintf(stderr, "  ctx %d: TTFT %.3f s, decode %.1f tok/s\n", context, sample.ttft_s,
                   decode_tok_s(sample));
    }
  }
  return kSuccess;
}

Result<ContextSample> ContextRun::request(EngineSession& session, int context, int index) const {
  const std::vector<TokenId> prompt = prompts_.prompt(context, index);
  const auto collector = std::make_shared<TokenCollector>();
  const Instant sent = SteadyClock().now();
  COPSE_RETURN_IF_ERROR(run_request(session, submit_of(plan_.gen_tokens), prompt, collector));
  if (collector->ids.size() != static_cast<std::size_t>(plan_.gen_tokens)) {
    return Error{ErrorCode::internal, "engine", "an answer has not the length that was asked for"};
  }
  const DraftSummary& draft = collector->finished->draft;
  ContextSample sample;
  sample.round = round_;
  sample.requested = context;
  sample.prompt_tokens = static_cast<int>(prompt.size());
  sample.generated = plan_.gen_tokens;
  sample.ttft_s = seconds(collector->first - sent);
  sample.decode_wall_s = seconds(collector->last - collector->first);
  sample.accepted_per_round =
      draft.rounds == 0 ? 0 : static_cast<double>(draft.round_tokens) / draft.rounds;
  sample.digest = digest_of(collector->ids);
  return sample;
}

Outcome ContextRun::read_facts(EngineSession& session) {
  // The status of after the last request comes with the next heartbeat.
  COPSE_RETURN_IF_ERROR(session.run_until([&session] {
    const auto& status = session.client().status();
    return status.has_value() && status->running == 0 && !status->ranks.empty();
  }));
  const EngineStatus& status = *session.client().status();
  if (status.restarts > 0) {
    return Error{ErrorCode::unavailable, "engine",
                 "the workers were restarted during the measurement: " + status.cause};
  }
  facts_ = {{"round", round_},
            {"load_s", session.load_s()},
            {"context_tokens", context_tokens_},
            {"pages", status.pages_total},
            {"weight_bytes_per_rank", status.ranks[0].weight_bytes},
            {"cache_bytes_per_rank", status.ranks[0].cache_bytes},
            {"draft_block", session.client().welcome()->draft_block}};
  return kSuccess;
}

}  // namespace copse::cli
