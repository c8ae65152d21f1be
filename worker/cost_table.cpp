#include "worker/cost_table.h"

#include <algorithm>

namespace copse {
namespace {

constexpr int kNodeCounts[] = {0, 1, 2, 4, 8, 16, 32, 64};
constexpr int kRounds = 4;  // of one node count, the first not counted
constexpr int kPromptTokens = 24;

StepPlan opening(int prompt_tokens, int pages) {
  StepPlan plan;
  SlotOpen open;
  open.generation = 1;
  open.remaining_tokens = limits::sequence_tokens;
  open.ignore_end = true;
  plan.opened.push_back(open);
  PrefillChunk chunk;
  chunk.generation = 1;
  chunk.last = true;
  for (int i = 0; i < prompt_tokens; ++i) chunk.tokens.push_back(i % 2);
  for (PageId page = 0; page < pages; ++page) chunk.new_pages.push_back(page);
  plan.prefill.push_back(chunk);
  return plan;
}

StepPlan decoding(int nodes) {
  StepPlan plan;
  DecodeEntry entry;
  entry.generation = 1;
  entry.mode = nodes == 0 ? DraftMode::none : DraftMode::tree;
  entry.node_budget = static_cast<std::uint16_t>(nodes);
  plan.decode.push_back(entry);
  return plan;
}

}  // namespace

Result<Bounded<StepCost, 32>> measure_costs(const TimedStep& run, int context_tokens, bool drafts) {
  Bounded<StepCost, 32> costs;
  // Prompt and rounds of a whole block each; too small a context is not worth a table.
  const int tokens = kPromptTokens + kRounds * limits::draft_block;
  const int pages = (tokens + limits::page_tokens - 1) / limits::page_tokens;
  if (context_tokens < tokens) return costs;
  for (const int nodes : kNodeCounts) {
    if (nodes > 0 && !drafts) break;
    COPSE_TRY([[maybe_unused]] const std::uint32_t prefill_us, run(opening(kPromptTokens, pages)));
    std::uint32_t least = UINT32_MAX;
    for (int i = 0; i < kRounds; ++i) {
      COPSE_TRY(const std::uint32_t step_us, run(decoding(nodes)));
      if (i > 0) least = std::min(least, step_us);
    }
    costs.push_back({static_cast<std::uint16_t>(nodes), static_cast<float>(least)});
    StepPlan release;
    release.released.push_back({0, 1});
    COPSE_TRY([[maybe_unused]] const std::uint32_t release_us, run(release));
  }
  return costs;
}

}  // namespace copse
