#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "scheduler/planted_bugs.h"

namespace copse {
namespace {

std::vector<StepCosts::Row> cost_rows(const WorkerReady& ready) {
  std::vector<StepCosts::Row> rows;
  for (const StepCost& cost : ready.costs) rows.push_back({cost.nodes, cost.step_us});
  return rows;
}

float span_s(Instant from, Instant to) {
  return static_cast<float>(seconds(to - from));
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options) : options_(options), pages_(0, 0), slots_(0) {
  CHECK(options_.max_sequences >= 1 && options_.max_sequences <= limits::batch_sequences);
  CHECK(options_.prefill_chunk >= 1 && options_.prefill_chunk <= limits::tree_nodes);
}

std::vector<Finished> Scheduler::start(std::uint32_t epoch, const WorkerReady& ready, Instant now) {
  CHECK(in_flight_.empty() && running_.empty());
  // What a drafter's acceptance and the steps' times taught is as true of the new workers.
  if (!started_ || ready.draft_block != ready_.draft_block) {
    policy_ = DraftPolicy(static_cast<int>(ready.draft_block), cost_rows(ready));
  }
  started_ = active_ = true;
  epoch_ = epoch;
  ready_ = ready;
  const int slots = std::clamp(static_cast<int>(ready.slots), 1, options_.max_sequences);
  pages_ = KvPages(static_cast<int>(std::min<std::uint32_t>(ready.pages, limits::pages)), slots);
  if (slots_.total() != slots) slots_ = SlotPool(slots);
  slots_.forget_workers();

  std::vector<Finished> ended;
  for (SequenceId id : std::vector<SequenceId>(waiting_.begin(), waiting_.end())) {
    Sequence& sequence = *find(id);
    const std::uint64_t all = std::uint64_t{sequence.prompt_tokens} + sequence.max_tokens;
    const std::uint32_t most = longest(sequence.prompt_tokens, sequence.max_tokens);
    if (all <= ready.context_tokens && pages_of(most) <= pages_.total()) continue;
    ended.push_back(finish(sequence, FinishReason::error, now,
                           "the restarted engine has no room for a request of this length"));
  }
  return ended;
}

void Scheduler::reset() {
  active_ = false;
  in_flight_.clear();
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    Sequence& sequence = **it;
    sequence.slot.reset();
    if (planted(PlantedBug::restart_off_by_one) && sequence.generated() > 0) {
      sequence.tokens.pop_back();
    }
    sequence.prefill_end = sequence.prefill_sent = 0;
    sequence.length = sequence.ahead = sequence.draws_ahead = 0;
    sequence.last_named = 0;
    const bool lost = planted(PlantedBug::restart_loses_one) && it == running_.rbegin();
    if (!lost) waiting_.push_front(sequence.id);
  }
  running_.clear();
  pages_ = KvPages(pages_.total(), slots_.total());
  slots_.forget_workers();
}

std::optional<Finished> Scheduler::cancel(SequenceId id, FinishReason reason, Instant now,
                                          std::string error,
                                          std::optional<std::uint32_t> delivered) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::nullopt;
  Finished end = finish(*sequence, reason, now, std::move(error));
  if (delivered && *delivered < end.generated) {
    totals_.generated_tokens -= end.generated - *delivered;
    end.generated = *delivered;
  }
  return end;
}

void Scheduler::pause(SequenceId id, bool paused) {
  if (Sequence* sequence = find(id)) sequence->paused = paused;
}

Finished Scheduler::finish(Sequence& sequence, FinishReason reason, Instant now,
                           std::string error) {
  Finished end;
  end.sequence = sequence.id;
  end.reason = reason;
  end.generated = sequence.generated();
  end.error = std::move(error);
  end.queue_s = span_s(sequence.submitted, sequence.planned.value_or(now));
  if (sequence.planned)
    end.prefill_s = span_s(*sequence.planned, sequence.first_token.value_or(now));
  if (sequence.first_token) end.decode_s = span_s(*sequence.first_token, sequence.last_token);
  end.draft = std::move(sequence.summary);
  if (sequence.slot) {
    pages_.release(sequence.slot->index, sequence.last_named);
    const bool leaks = planted(PlantedBug::leaked_slot) && reason == FinishReason::abort;
    if (!leaks) slots_.release(*sequence.slot, sequence.last_named);
    std::erase(running_, &sequence);
  } else {
    std::erase(waiting_, sequence.id);
  }
  sequences_.erase(sequence.id);
  return end;
}

std::vector<SequenceId> Scheduler::sequences() const {
  std::vector<SequenceId> ids;
  ids.reserve(sequences_.size());
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Sequence* Scheduler::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

const Sequence* Scheduler::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

Status Scheduler::check_integrity() const {
  COPSE_RETURN_IF_ERROR(pages_.check());
  if (sequences_.size() != running_.size() + waiting_.size()) {
    return Error{ErrorCode::internal, "sequences", "a sequence neither runs nor waits"};
  }
  for (const Sequence* sequence : running_) {
    const auto least = pages_of(sequence->length);
    if (!sequence->slot || pages_.owned(sequence->slot->index) < least) {
      return Error{ErrorCode::internal, "pages", "a sequence is longer than its pages"};
    }
  }
  if (idle() && (pages_.used() != 0 || slots_.in_use() != 0)) {
    return Error{ErrorCode::internal, "pages", "pages or slots are held by nobody"};
  }
  return {};
}

}  // namespace copse
