// Step 8: what a step did becomes truth, or is refused as a whole.
#include <algorithm>

#include "scheduler/scheduler.h"

namespace copse {
namespace {

Error wrong(const char* what) {
  return Error{ErrorCode::malformed, "step_result", what};
}

}  // namespace

Result<Committed> Scheduler::commit(const StepResult& result, Instant now) {
  COPSE_RETURN_IF_ERROR(check_result(result));
  const InFlight plan = std::move(in_flight_.front());
  in_flight_.pop_front();
  pages_.answered(plan.step);
  slots_.answered(plan.step);
  Committed committed;
  for (std::size_t i = 0; i < plan.asked.size(); ++i) {
    commit_entry(plan.asked[i], result.slots[i], now, committed);
  }
  learn_step_time(result, plan);
  return committed;
}

// Everything is checked before anything is kept.
Status Scheduler::check_result(const StepResult& result) const {
  if (in_flight_.empty() || result.step != in_flight_.front().step || result.epoch != epoch_) {
    return wrong("it answers no plan that is on the way");
  }
  const std::vector<Asked>& asked = in_flight_.front().asked;
  if (result.slots.size() != asked.size()) return wrong("it has not one entry per plan entry");
  for (std::size_t i = 0; i < asked.size(); ++i) {
    COPSE_RETURN_IF_ERROR(check_entry(asked[i], result.slots[i]));
  }
  return {};
}

Status Scheduler::check_entry(const Asked& asked, const SlotResult& result) const {
  if (result.slot != asked.slot.index || result.generation != asked.slot.generation) {
    return wrong("an entry names another slot than the plan");
  }
  const Sequence* sequence = find(asked.sequence);
  if (sequence == nullptr || result.finish == FinishReason::error) return {};
  if (asked.prefill_end > 0) {
    if (result.length != asked.prefill_end) return wrong("a prefill ended at another length");
  } else {
    if (result.walk_length < 1 || result.walk_length > asked.worst) {
      return wrong("a walk is longer than its draft");
    }
    const bool ends = result.finish != FinishReason::none;
    const std::uint32_t expected = sequence->length + result.walk_length;
    if (ends ? result.length > expected : result.length != expected) {
      return wrong("a round ended at another length");
    }
  }
  return check_tokens(*sequence, asked, result);
}

Status Scheduler::check_tokens(const Sequence& sequence, const Asked& asked,
                               const SlotResult& result) const {
  const std::size_t count = result.tokens.size();
  if (!asked.draws) return count == 0 ? Status() : wrong("tokens before the prompt's end");
  const std::size_t most = asked.prefill_end > 0 ? 1 : result.walk_length;
  if (count < 1 || count > most || sequence.generated() + count > sequence.max_tokens) {
    return wrong("a number of tokens that was not asked for");
  }
  if (result.finish == FinishReason::none && count != most) return wrong("cut without an end");
  const bool known = std::all_of(result.tokens.begin(), result.tokens.end(), [&](TokenId token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < ready_.vocabulary;
  });
  return known ? Status() : wrong("a token that the vocabulary lacks");
}

void Scheduler::commit_entry(const Asked& asked, const SlotResult& result, Instant now,
                             Committed& out) {
  Sequence* sequence = find(asked.sequence);
  if (sequence == nullptr) return;  // it finished or was cancelled after this plan was made
  sequence->length = result.length;
  sequence->ahead -= asked.worst;
  if (asked.draws) --sequence->draws_ahead;
  if (result.finish == FinishReason::error) {
    out.finished.push_back(
        finish(*sequence, FinishReason::error, now, "the model's output was not a number"));
    return;
  }
  if (!asked.draws) return;
  Delivery delivery;
  delivery.sequence = sequence->id;
  delivery.index = sequence->generated();
  delivery.tokens = result.tokens;
  delivery.draft_nodes = result.draft_nodes;
  delivery.round = asked.prefill_end == 0;
  sequence->tokens.insert(sequence->tokens.end(), result.tokens.begin(), result.tokens.end());
  totals_.generated_tokens += result.tokens.size();
  if (!sequence->first_token) sequence->first_token = now;
  sequence->last_token = now;
  if (delivery.round) count_round(*sequence, asked, result, result.tokens.size());
  out.deliveries.push_back(std::move(delivery));

  FinishReason reason = result.finish;
  if (reason == FinishReason::none && sequence->generated() == sequence->max_tokens) {
    reason = FinishReason::length;
  }
  if (reason != FinishReason::none) out.finished.push_back(finish(*sequence, reason, now, {}));
}

// A walk of w gives w - 1 draft tokens, then the bonus: of d delivered ones, min(d, w - 1) are
// drafts.
void Scheduler::count_round(Sequence& sequence, const Asked& asked, const SlotResult& result,
                            std::size_t delivered) {
  policy_.observe_round(sequence.draft, asked.choice, result.walk_length);
  DraftSummary& summary = sequence.summary;
  ++summary.rounds;
  summary.round_tokens += static_cast<std::uint32_t>(delivered);
  static_cast<void>(summary.walk_lengths.try_push(result.walk_length));
  if (asked.choice.nodes == 0) return;
  summary.node_budget = static_cast<std::uint16_t>(asked.choice.nodes);
  ++totals_.rounds;
  totals_.draft_nodes += result.draft_nodes;
  const std::size_t drafts = std::min<std::size_t>(delivered, result.walk_length - 1u);
  totals_.accepted_tokens += drafts;
  const std::size_t positions = std::min<std::size_t>(ready_.draft_block - 1, limits::draft_block);
  if (summary.accepted_by_position.size() < positions)
    summary.accepted_by_position.resize(positions);
  if (totals_.accepted_by_position.size() < positions)
    totals_.accepted_by_position.resize(positions);
  for (std::size_t d = 0; d < drafts; ++d) {
    ++summary.accepted_by_position[d];
    ++totals_.accepted_by_position[d];
  }
}

void Scheduler::learn_step_time(const StepResult& result, const InFlight& plan) {
  int rows = 0;
  bool drafting = false;
  for (std::size_t i = 0; i < plan.asked.size(); ++i) {
    if (plan.asked[i].prefill_end > 0) return;       // such a step says nothing about rounds
    if (result.slots[i].walk_length == 0) continue;  // done before: a no-op
    rows += 1 + result.slots[i].draft_nodes;
    drafting |= plan.asked[i].choice.nodes > 0;
  }
  if (rows > 0) policy_.observe_step(rows, drafting, result.timing.total_us);
}

}  // namespace copse
