#pragma once
// One engine of `copse bench context`: started, measured over the context lengths, ended.
#include <vector>

#include "tools/cli/bench_context.h"
#include "tools/cli/engine_session.h"

namespace copse::cli {

class ContextRun {
 public:
  ContextRun(const EngineOptions& engine, const ContextPlan& plan, const BenchPrompts& prompts,
             int round)
      : engine_(engine), plan_(plan), prompts_(prompts), round_(round) {}

  // One request at a time, argmax, exactly gen_tokens each. Fails if the workers were restarted
  // meanwhile: such times are not the engine's.
  Outcome measure();

  const std::vector<ContextSample>& samples() const { return samples_; }
  const std::vector<int>& skipped() const { return skipped_; }  // longer than the engine holds
  int context_tokens() const { return context_tokens_; }        // what it holds
  // What the engine said of itself: context, pages, bytes, load time.
  const Json& facts() const { return facts_; }

 private:
  Outcome warm_up(EngineSession& session);
  Outcome measure_contexts(EngineSession& session);
  Result<ContextSample> request(EngineSession& session, int context, int index) const;
  Outcome read_facts(EngineSession& session);

  const EngineOptions& engine_;
  const ContextPlan& plan_;
  const BenchPrompts& prompts_;
  int round_;
  int context_tokens_ = 0;
  std::vector<ContextSample> samples_;
  std::vector<int> skipped_;
  Json facts_;
};

}  // namespace copse::cli
